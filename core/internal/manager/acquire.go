package manager

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Open returns a manager on a driver. It does no I/O. The error is the driver's.
func Open(c Config) (*Manager, error) {
	mgr := &Manager{Config: c, seed: maphash.MakeSeed()}
	for i := range mgr.shards {
		mgr.shards[i].locks = map[string]*lock{}
	}
	mgr.ctx, mgr.cancel = context.WithCancel(context.Background())
	var err error
	if mgr.session, err = c.Driver.Open(driver.Config{Sink: events{mgr}, StoreTimeout: c.StoreTimeout, Identity: c.Identity}); err != nil {
		mgr.cancel()
		return nil, err
	}
	mgr.prompt, _ = mgr.session.(driver.Prompt)
	mgr.all, _ = mgr.session.(driver.PromptAll)
	_, mgr.pooled = c.Driver.(driver.Pooled)
	mgr.renewer.init(mgr)
	mgr.releaser.init(mgr)
	mgr.workers.Go(mgr.renewer.run)
	mgr.workers.Go(mgr.releaser.run)
	return mgr, nil
}

// Acquire takes the lock of a key. Patience bounds the wait, the store's answer included; it
// must be positive, also if the terms' Wait is 0. Held is what the call holds already; nil is
// nothing. The hold is nil if and only if there is a refusal.
func (mgr *Manager) Acquire(ctx context.Context, t *Terms, key string, patience time.Duration, held Held) (*Hold, *Refusal) {
	start := time.Now()
	sctx, sp := t.Signals.Acquire(ctx)
	h, r := mgr.wait(sctx, t, key, patience, start, held, sp, false)
	if r != nil {
		t.Signals.Refused(sctx, sp, time.Since(start), r.Outcome(signals.Acquired))
		mgr.noteRefused(t, key, r, start)
		return nil, r
	}
	h.granted(ctx, sctx, sp, start)
	return h, nil
}

// granted reports in metrics and spans that a caller who came at start got the hold. sctx and sp
// are of the acquisition, which began in ctx.
func (h *Hold) granted(ctx, sctx context.Context, sp signals.Span, start time.Time) {
	h.terms.Signals.Granted(sctx, sp, h.since.since(at(start)), h.Token())
	h.span = h.terms.Signals.Hold(ctx, sp)
	h.span.Token(h.Token())
	if o := h.lease.line.manager.observer.Load(); o != nil {
		h.noteGranted(*o, h.since.since(at(start)))
	}
}

// wait is Acquire without its metrics, for a caller who came at start. sp is its span. again says
// that it is part of a call that was counted in.
func (mgr *Manager) wait(ctx context.Context, t *Terms, key string, patience time.Duration, start time.Time, held Held, sp signals.Span, again bool) (*Hold, *Refusal) {
	if ctx.Err() != nil {
		return nil, overdue(ctx)
	}
	if !mgr.life.enter(again) {
		return nil, refuse(Closed)
	}
	w := waiters.Get().(*waiter)
	*w = waiter{terms: t, since: start, trace: (*driver.Trace)(sp.Trace())}
	rq, refused := mgr.join(w, key, mgr.prompt != nil && patience >= driver.Promptness && leaves(ctx, driver.Promptness))
	if refused != nil {
		mgr.life.leave()
		return nil, refused
	}
	if rq != nil {
		w.line.begin(rq, w)
	}
	if w.ready != nil {
		mgr.await(ctx, w, key, patience, held)
	}
	h, refused := w.hold, w.refusal
	if w.behind != nil {
		link(sp, *w.behind)
	}
	if refused != nil && (w.behind == nil || !refused.Holder.Same(*w.behind)) {
		link(sp, refused.Holder)
	}
	if w.ready == nil {
		waiters.Put(w)
	}
	switch {
	case h == nil:
		mgr.life.leave()
		if ctx.Err() != nil {
			return nil, overdue(ctx)
		}
		mgr.heardLate(ctx, refused, start)
		return nil, refused
	case ctx.Err() != nil:
		giveBackAll([]*Hold{h})
		return nil, overdue(ctx)
	}
	return h, nil
}

// Ask calls do with the session, and with a context that ends after StoreTimeout. It returns why
// the store did not do what it was asked.
func (mgr *Manager) Ask(ctx context.Context, do func(context.Context, driver.Session) error) *Refusal {
	if mgr.life.isClosed() {
		return refuse(Closed)
	}
	sctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
	defer cancel()
	err := do(sctx, mgr.session)
	mgr.heard(ctx, err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return overdue(ctx)
	case errors.Is(err, driver.ErrClosed):
		return refuse(Closed)
	}
	return unavailable(err)
}

// Drop loses the leases of a key up to a token, which the store has ended: its push comes
// later, or never. A grant that is on its way counts too.
func (mgr *Manager) Drop(key string, upTo int64) {
	s := mgr.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	lk := s.locks[key]
	if lk == nil {
		return
	}
	var over []*lease // collected first, since lose changes the lists
	for ln := lk.lines; ln != nil; ln = ln.next {
		if ln.asking != nil {
			ln.asking.dropped = max(ln.asking.dropped, upTo)
		}
		for l := ln.leases; l != nil; l = l.next {
			if l.Token <= upTo {
				over = append(over, l)
			}
		}
	}
	for _, l := range over {
		if l.current() {
			l.line.lose(l)
		}
	}
}
