package queue

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Open returns a queue on a driver. It does no I/O. The error is the driver's.
func Open(c Config) (*Queue, error) {
	q := &Queue{Config: c, seed: maphash.MakeSeed()}
	for i := range q.shards {
		q.shards[i].locks = map[string]*lock{}
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	var err error
	if q.session, err = c.Driver.Open(driver.Config{Sink: events{q}, StoreTimeout: c.StoreTimeout, Identity: c.Identity}); err != nil {
		q.cancel()
		return nil, err
	}
	q.prompt, _ = q.session.(driver.Prompt)
	q.all, _ = q.session.(driver.PromptAll)
	_, q.pooled = c.Driver.(driver.Pooled)
	q.renewer.init(q)
	q.releaser.init(q)
	q.workers.Go(q.renewer.run)
	q.workers.Go(q.releaser.run)
	return q, nil
}

// Acquire takes the lock of a key. Patience bounds the wait, the store's answer included; it
// must be positive, also if the terms' Wait is 0. Held is what the call holds already; nil is
// nothing. The hold is nil if and only if there is a refusal.
func (q *Queue) Acquire(ctx context.Context, t *Terms, key string, patience time.Duration, held Held) (*Hold, *Refusal) {
	start := time.Now()
	sctx, sp := t.Signals.Acquire(ctx)
	h, r := q.wait(sctx, t, key, patience, start, held, sp, false)
	if r != nil {
		t.Signals.Refused(sctx, sp, time.Since(start), r.Outcome(signals.Acquired))
		q.noteRefused(t, key, r, start)
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
	if o := h.lease.line.queue.observer.Load(); o != nil {
		h.noteGranted(*o, h.since.since(at(start)))
	}
}

// wait is Acquire without its metrics, for a caller who came at start. sp is its span. again says
// that it is part of a call that was counted in.
func (q *Queue) wait(ctx context.Context, t *Terms, key string, patience time.Duration, start time.Time, held Held, sp signals.Span, again bool) (*Hold, *Refusal) {
	if ctx.Err() != nil {
		return nil, overdue(ctx)
	}
	if !q.life.enter(again) {
		return nil, refuse(Closed)
	}
	w := waiters.Get().(*waiter)
	*w = waiter{terms: t, since: start, trace: (*driver.Trace)(sp.Trace())}
	rq, refused := q.join(w, key, q.prompt != nil && patience >= driver.Promptness && leaves(ctx, driver.Promptness))
	if refused != nil {
		q.life.leave()
		return nil, refused
	}
	if rq != nil {
		w.line.begin(rq, w)
	}
	if w.ready != nil {
		q.await(ctx, w, key, patience, held)
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
		q.life.leave()
		if ctx.Err() != nil {
			return nil, overdue(ctx)
		}
		q.heardLate(ctx, refused, start)
		return nil, refused
	case ctx.Err() != nil:
		giveBackAll([]*Hold{h})
		return nil, overdue(ctx)
	}
	return h, nil
}

// Ask calls do with the session, and with a context that ends after StoreTimeout. It returns why
// the store did not do what it was asked.
func (q *Queue) Ask(ctx context.Context, do func(context.Context, driver.Session) error) *Refusal {
	if q.life.isClosed() {
		return refuse(Closed)
	}
	sctx, cancel := context.WithTimeout(ctx, q.StoreTimeout)
	defer cancel()
	err := do(sctx, q.session)
	q.heard(ctx, err)
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
func (q *Queue) Drop(key string, upTo int64) {
	s := q.shardOf(key)
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
