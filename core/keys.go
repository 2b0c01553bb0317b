package core

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	listedAtOnce    = 512 // keys that the store looks at, for one page
	inspectedAtOnce = 64
)

// Keys returns the keys in the engine's namespace that begin with prefix and are held or waited
// for, with what [Engine.Inspect] says of each. All of them begin with an empty prefix. Each key
// comes once, in no order. Keys that are taken or given back meanwhile may come or not.
//
// It is for a person or a tool: the loop asks the store for some hundred keys at a time, and
// then about each of them. What it costs ends with the loop.
//
// An error with a [KeyState].Key is about that key alone, such as one that somebody has
// overwritten, and the loop goes on if it is let. An error without a Key is the last. It is an
// [*Error] around ErrUnavailable, ErrClosed or ctx's error, or around ErrPolicy if the driver
// cannot list its keys.
func (e *Engine) Keys(ctx context.Context, prefix string) iter.Seq2[KeyState, error] {
	return func(yield func(KeyState, error) bool) {
		if err := e.misused(ctx, "list", ""); err != nil {
			yield(KeyState{}, err)
			return
		}
		told := make(map[string]bool)
		for after, last := "", false; !last; {
			page, err := e.list(ctx, e.prefix+prefix, after)
			if err != nil {
				yield(KeyState{}, err)
				return
			}
			for _, k := range e.inspectAll(ctx, page.Keys) {
				switch {
				case k.err != nil && !overwritten(k.err):
					yield(KeyState{}, k.err)
					return
				case told[k.Key] || k.err == nil && !k.Held && k.Waiting == 0:
					continue
				}
				told[k.Key] = true
				if !yield(k.KeyState, k.err) {
					return
				}
			}
			after, last = page.Next, page.Next == ""
		}
	}
}

// list asks the store for some keys, which have the engine's prefix.
func (e *Engine) list(ctx context.Context, prefix, after string) (page driver.Page, err error) {
	const op = "list"
	unable := false
	r := e.queue.Ask(ctx, func(ctx context.Context, s driver.Session) (err error) {
		lister, ok := s.(driver.Lister)
		if unable = !ok; unable {
			return nil
		}
		page, err = lister.List(ctx, prefix, after, listedAtOnce)
		return err
	})
	if unable {
		return page, e.failure(op, "", ErrPolicy).because("driver %s cannot list its keys; name one, and use Inspect", e.caps.Name)
	}
	return page, e.refused(op, "", r)
}

// inspected is a key of a page.
type inspected struct {
	KeyState
	err error
}

// inspectAll inspects keys with the engine's prefix, many at the same time.
func (e *Engine) inspectAll(ctx context.Context, keys []string) []inspected {
	all := make([]inspected, len(keys))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(inspectedAtOnce, len(keys)) {
		workers.Go(func() {
			for i := range next {
				key := strings.TrimPrefix(keys[i], e.prefix)
				all[i].KeyState, all[i].err = e.Inspect(ctx, key)
				all[i].Key = key
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	workers.Wait()
	return all
}

// overwritten reports whether the store answers, and has something under the key that it
// refuses to take for a lock, or that no engine could have locked.
func overwritten(err error) bool {
	var refused *driver.PermanentError
	return errors.As(err, &refused) || errors.Is(err, ErrKey)
}
