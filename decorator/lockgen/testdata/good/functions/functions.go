// Package functions has functions with locks around them.
package functions

import (
	"context"
	"fmt"
)

// Refill fills a cache.
//
//lock:with "cache:{key}" wait=2s maxwaiting=100 linger=1500us
func Refill(ctx context.Context, key string, values ...string) (n int, err error) {
	return len(values), ctx.Err()
}

// Convert is generic.
//
//lock:with "convert:{from}:{to}:{text}:{flag}"
func Convert[I ~int | ~uint8 | ~uint64, K interface {
	fmt.Stringer
	~string
}, B ~bool, V any](ctx context.Context, from I, to *K, text K, flag B, value V) (V, error) {
	return value, nil
}

//lock:with "nothing" wait=0s maxhold=0s
func nothing(context.Context) error { return nil }

//lock:with `raw:{arg}` ttl=1h linger=10ms
func raw(ctx context.Context, arg string, _ int, _ func(guard, error) locks) error { return nil }

type (
	guard struct{}
	locks = map[string]guard
)

// Callback takes and returns functions.
//
//lock:with "callback:{err}:{section}:{core}"
func Callback(ctx context.Context, err string, section uint, core int8) (func(error) (out int, err error), chan<- struct{ A, B int }, error) {
	return nil, nil, nil
}
