package main

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// span is from when to when something went on, in microseconds of the machine's clock,
// which all processes share.
type span struct{ From, To int64 }

// account is what has happened in a process, or in all.
type account struct {
	mu          sync.Mutex
	Gets, Loads []span
}

// note takes down what has ended just now.
func (a *account) note(list *[]span, began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*list = append(*list, span{began.UnixMicro(), time.Now().UnixMicro()})
}

// ask is one of the processes of a run, all of whose callers ask until that is over. It
// writes its account by gob.
func ask(ctx context.Context, o options, out io.Writer) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: o.addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	var a account
	get, end, err := ways[o.way].open(o, rdb, func(ctx context.Context, _ string) (price, error) {
		defer a.note(&a.Loads, time.Now())
		return price{1200}, pause(ctx, o.load)
	})
	if err != nil {
		return err
	}
	over := time.Now().Add(o.run)
	errs := make(chan error)
	for range callers {
		go func() {
			var err error
			for err == nil && time.Now().Before(over) {
				if err = pause(ctx, rand.N(400*time.Millisecond)); err == nil {
					began := time.Now()
					_, err = get(ctx, product)
					a.note(&a.Gets, began)
				}
			}
			errs <- err
		}()
	}
	for range callers {
		if e := <-errs; err == nil {
			err = e
		}
	}
	if err = errors.Join(err, end()); err != nil {
		return err
	}
	return gob.NewEncoder(out).Encode(&a)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
