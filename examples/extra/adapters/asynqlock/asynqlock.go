// Package asynqlock puts a lock around asynq's tasks:
//
//	type payment struct {
//		Order string `json:"order"`
//	}
//
//	mux.Handle("order:pay", asynqlock.Lock(locks, core.Policy{Key: "order:{Order}", Wait: 5 * time.Second}, pay))
//	asynq.NewServer(redis, asynq.Config{IsFailure: asynqlock.IsFailure, RetryDelayFunc: asynqlock.RetryDelay})
//
// asynq runs a task again when its time is over, or its lease, and does not wait for a handler
// that goes on. The lock keeps the second run from starting beside it. A Wait takes a place of
// the worker's Concurrency.
//
// A task that did not get its lock is tried again, and that counts as none of its retries. But
// asynq archives whatever fails once the retries are used up: give MaxRetry one more than the
// task needs by itself, at least 1.
package asynqlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockaround/lockaround/core"
)

// Lock returns a handler that decodes a task's payload, which is JSON, into a T, takes the lock
// of the key that p makes of its fields, and calls fn with it. A payload that makes no key is
// archived. Lock panics if the policy cannot work.
func Lock[T any](e *core.Engine, p core.Policy, fn func(context.Context, *asynq.Task, T) error) asynq.Handler {
	guard, err := core.NewGuard(e, p, core.Fields[*T]())
	if err != nil {
		panic(err)
	}
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
		var in T
		if err := json.Unmarshal(task.Payload(), &in); err != nil {
			return fmt.Errorf("payload of task %s: %w: %w", task.Type(), err, asynq.SkipRetry)
		}
		section, err := guard.Enter(ctx, &in)
		switch {
		case errors.Is(err, core.ErrKey):
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		case err != nil:
			return &refused{err}
		}
		defer section.Leave(&err)
		return fn(section.Context(), task, in)
	})
}

// refused is the error of a task that never ran.
type refused struct{ error }

func (r *refused) Unwrap() error { return r.error }

// IsFailure is for asynq.Config. It is false for a task that never ran.
func IsFailure(err error) bool { return !errors.As(err, new(*refused)) }

// RetryDelay is for asynq.Config: a second for a task that never ran, and otherwise asynq's own.
func RetryDelay(n int, err error, task *asynq.Task) time.Duration {
	if !IsFailure(err) {
		return time.Second
	}
	return asynq.DefaultRetryDelayFunc(n, err, task)
}
