package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// admin are clients of the store's servers that do not go by a link, by address; there are
// none if these are no Redis.
type admin map[string]*redis.Client

func newAdmin(s store, addrs []string) admin {
	a := admin{}
	if s.Kind.Program() != server.Redis {
		return a
	}
	for _, addr := range addrs {
		a[addr] = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	}
	return a
}

func (a admin) close() error {
	var errs []error
	for _, c := range a {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// tell sends a command to each server that is to be written to.
func (w *world) tell(ctx context.Context, words ...any) error {
	masters, err := w.server.Masters(ctx)
	if err != nil {
		return err
	}
	for _, addr := range masters {
		if err := w.admin[addr].Do(ctx, words...).Err(); err != nil {
			return fmt.Errorf("%v at %s: %w", words, addr, err)
		}
	}
	return nil
}

// unasked is what several servers do to each other.
var unasked = fault{
	Name: "unasked-failover", Lossy: true, Reach: all,
	About: "servers took a master that was stopped, or slow on a busy machine, for dead, and another one its place",
}

// mend has several servers be as before the last fault. What they did unasked meanwhile,
// as they took each other for dead, is a fault too.
func (w *world) mend(ctx context.Context) error {
	m, ok := w.server.(server.Mender)
	if !ok {
		return nil
	}
	changed, err := m.Mend(ctx)
	now := history.Now()
	if changed {
		w.log.Add(history.Event{Op: history.Fault, Name: unasked.Name, Lossy: unasked.Lossy, Outage: true, Call: w.mended, Return: now})
	}
	w.mended = now
	return err
}
