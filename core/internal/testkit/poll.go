// Package testkit has what tests and laboratories of all stores need.
//
// # Files
//
//	poll.go      waits for what nobody can be told of
//	mutation.go  puts a bug into source, and sees that tests find it
package testkit

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// patience ends a test that would hang, and is no promise.
const patience = 2 * time.Minute

// Until asks every 5 ms whether something holds, and fails the test after two minutes.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if err := Condition(context.Background(), what, holds); err != nil {
		t.Fatal(err)
	}
}

// Condition asks every 5 ms whether something holds. The error is that of ctx, or what was
// waited for in vain for two minutes.
func Condition(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !holds(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if time.Since(began) > patience {
			return fmt.Errorf("waited %v in vain for %s", patience, what)
		}
	}
	return nil
}
