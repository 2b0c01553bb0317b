// Package fix has calls that get the outer context, and what is made of them.
package fix

import (
	"context"

	"github.com/lockaround/lockaround/core"
)

var (
	locks  *core.Engine
	policy core.Policy
)

func save(context.Context) error { return nil }

func outer(ctx context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		return save(ctx) // want `save gets ctx under the lock`
	})
}

// Another context may have more values, or an earlier end.
func another(ctx, other context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		return save(other) // want `save gets other under the lock`
	})
}

// Here the name means something else.
func shadowed(ctx context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		{
			lctx := "something else"
			_ = lctx
			return save(ctx) // want `save gets ctx under the lock`
		}
	})
}

func background(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		return save(context.Background()) // want `save gets context.Background\(\) under the lock`
	})
}
