package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// maxKeys is how many keys a policy may have.
const maxKeys = 64

// bundle is what a lease of several keys has besides its first hold.
type bundle struct {
	holds   []*hold // one for each key, sorted by key
	binding         // its context ends with the first of them, or with the lease
}

// holds calls yield with the hold of each key, in their order.
func (l *Lease) holds(yield func(*hold) bool) {
	if l == nil {
		return
	}
	if l.bundle == nil {
		yield(l.hold)
		return
	}
	for _, h := range l.bundle.holds {
		if !yield(h) {
			return
		}
	}
}

// together calls do for the hold of each key, at the same time, and returns the first
// error in their order, if possible one that says that a hold had ended.
func (l *Lease) together(do func(*hold) error) error {
	if l.bundle == nil {
		return do(l.hold)
	}
	errs := make([]error, len(l.bundle.holds))
	var all sync.WaitGroup
	for i, h := range l.bundle.holds {
		all.Go(func() { errs[i] = do(h) })
	}
	all.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	for _, err := range errs {
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
	}
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// grantAll takes the locks of several keys. Everybody takes them in the same order, so
// that two callers never wait for each other.
func (e *Engine) grantAll(ctx context.Context, held *holding, pl *plan, keys []string, l *Lease) error {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	start := time.Now()
	var holds []*hold
	for _, key := range keys {
		h, err := e.takeHold(ctx, held, pl, key, e.patience(pl, time.Since(start)))
		if err != nil {
			giveUp(ctx, holds, min(e.patience(pl, time.Since(start)), e.timeout))
			if len(holds) > 0 && pl.Wait > 0 && errors.Is(err, errSilent) {
				err = e.failure("acquire", pl.Name, ErrTimeout).because("the first of several keys took almost all of Wait")
			}
			return err
		}
		holds = append(holds, h)
	}
	l.hold, l.bundle = holds[0], &bundle{holds: holds}
	l.bundle.bind(context.Background(), nil, l)
	if l.Err() != nil {
		l.bundle.unbind()
		giveUp(ctx, holds, min(e.patience(pl, time.Since(start)), e.timeout))
		kind := ErrTimeout
		if pl.Wait == 0 {
			kind = ErrUnavailable // the store took that long
		}
		return e.failure("acquire", pl.Name, kind).because("the lease of one key was over before all others had been granted; let TTL and MaxHold be longer than Wait")
	}
	return nil
}

// giveUp releases the first keys when one of the others cannot be had, and waits for
// that while the caller would wait for a key.
func giveUp(ctx context.Context, holds []*hold, patience time.Duration) {
	done := make(chan struct{}, len(holds))
	for _, h := range holds {
		h.abandon(func() { done <- struct{}{} })
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for range holds {
		select {
		case <-done:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// patience is how long a caller waits who has spent that much of it: a policy that does
// not wait has the store's time to say whether its keys are taken.
func (e *Engine) patience(p *plan, spent time.Duration) time.Duration {
	switch p.Wait {
	case 0:
		return max(e.timeout-spent, 1)
	case Forever:
		return Forever
	}
	return max(p.Wait-spent, 1)
}
