// Package generic has generic types with locks around their methods.
package generic

import (
	"cmp"
	"context"
)

// Key is what can be part of the key of a lock.
type Key interface {
	comparable
	~string
}

// Store keeps values.
type Store[K Key, V any] interface {
	//lock:with "store:{key}"
	Get(ctx context.Context, key K) (V, error)

	// Len has no lock.
	Len() int

	//lock:with "store:{e.Key}"
	Put(ctx context.Context, e Entry[K, V]) error
}

// Entry is a key and its value.
type Entry[K cmp.Ordered, V any] struct {
	Key   K
	Value V
}

// Map is a struct.
type Map[K ~int | ~uint, V any] struct {
	Values map[K]V
}

// Swap calls its type parameters by other names.
//
//lock:with "map:{at}"
func (m *Map[At, _]) Swap(_ context.Context, at At) (old At, err error) { return at, nil }

// Len has no lock.
func (m Map[K, V]) Len() int { return len(m.Values) }
