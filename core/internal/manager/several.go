package manager

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Several keys of one call are asked for at once, as by a caller who would not wait:
//
//	a b c d     asked for at once: a, b and d are free, c is taken
//	a b         kept; d is returned
//	a b c       c is waited for
//	a b c d     the rest is asked for at once, and so on
//
// The keys are sorted. So whoever waits holds smaller keys only, and two calls never wait for
// each other. Nobody who waits for one of the keys is passed.
//
// Stores with Capabilities.Recall tell the holder of each key that is found taken, also beyond the
// first: as they do for any caller who would not wait. That is as it should be. The call wants
// these keys next, so a lease that lingers is returned by then, and Contended promises no more
// than that somebody has asked.

// several is an acquisition of several keys.
type several struct {
	manager  *Manager
	ctx      context.Context
	terms    *Terms
	keys     []string
	held     Held
	start    time.Time
	patience time.Duration
	spans    []spanned // of each key, from the start until it is kept
	holds    []*Hold   // of the first keys, in their order: what is kept
	beyond   []*Hold   // what try got beyond the first key that it did not get
	answered bool      // by the store, or this process knew
}

type spanned struct {
	ctx context.Context
	signals.Span
}

// atOnce is how many keys are asked for at once if each request may take a connection of a pool
// that belongs to the program.
const atOnce = 4

// AcquireAll takes the locks of several keys, which are sorted and all different. Patience bounds
// the wait for all of them together. Otherwise it is as Acquire: there is a hold for each key, in
// their order, if and only if there is no refusal. After a refusal all that was granted has been
// released, or is released in the background if that takes longer than patience.
func (mgr *Manager) AcquireAll(ctx context.Context, t *Terms, keys []string, patience time.Duration, held Held) ([]*Hold, *Refusal) {
	s := several{
		manager: mgr, ctx: ctx, terms: t, keys: keys, held: held, start: time.Now(), patience: patience,
		spans: make([]spanned, len(keys)), holds: make([]*Hold, 0, len(keys)),
	}
	for i := range s.spans {
		s.spans[i].ctx, s.spans[i].Span = t.Signals.Acquire(ctx)
	}
	// Shutdown lets a call that waits or holds go on to its other keys.
	if !mgr.life.enter(false) {
		r := refuse(Closed)
		if ctx.Err() != nil {
			r = overdue(ctx)
		}
		s.fail(r)
		return nil, r
	}
	defer mgr.life.leave()
	for len(s.holds) < len(keys) {
		if r := s.next(); r != nil {
			s.fail(r)
			return nil, r
		}
	}
	return s.holds, nil
}

// next takes at least one more key.
func (s *several) next() *Refusal {
	if len(s.holds)+1 < len(s.keys) {
		r := s.try()
		if r == nil {
			return nil
		}
		s.answered = s.answered || r.Why == Busy
		if s.final(r) {
			link(s.spans[len(s.holds)].Span, r.Holder)
			return s.late(r)
		}
		releaseBehind(s.beyond, 0)
		s.beyond = nil
	}
	i := len(s.holds)
	h, r := s.manager.wait(s.spans[i].ctx, s.terms, s.keys[i], s.left(), time.Now(), &heldMore{s.held, s.holds}, s.spans[i].Span, true)
	if r != nil {
		return s.late(r)
	}
	s.keep(h)
	return nil
}

// final reports whether a refusal of try ends the acquisition. Otherwise the key is waited for.
func (s *several) final(r *Refusal) bool {
	return s.terms.Wait == 0 || s.left() <= 1 || r.Why != Busy && r.Why != Unavailable
}

// left returns what is left of the patience; it is positive.
func (s *several) left() time.Duration {
	if s.patience == Forever {
		return Forever
	}
	return max(s.patience-time.Since(s.start), 1)
}

// late returns the refusal of a caller whose patience may be over: if the store has answered
// before, it is not the store's silence that made the caller late.
func (s *several) late(r *Refusal) *Refusal {
	switch {
	case s.terms.Wait == 0 || s.left() > 1:
	case r.Why == Busy:
		return &Refusal{Why: Timeout, Holder: r.Holder}
	case r.Cause == ErrSilent && (s.answered || len(s.holds) > 0):
		return &Refusal{Why: Timeout, Detail: "the first of several keys took almost all of Wait"}
	}
	return r
}

func (s *several) keep(h *Hold) {
	sp := s.spans[len(s.holds)]
	h.granted(s.ctx, sp.ctx, sp.Span, s.start)
	s.holds = append(s.holds, h)
}

// fail ends the acquisition.
func (s *several) fail(r *Refusal) {
	outcome, at := r.Outcome(signals.Acquired), len(s.holds)
	s.terms.Signals.Refused(s.spans[at].ctx, s.spans[at].Span, time.Since(s.start), outcome)
	s.manager.noteRefused(s.terms, s.keys[at], r, s.start)
	for _, sp := range s.spans[at+1:] {
		sp.End(outcome)
	}
	releaseUnused(s.ctx, append(s.holds, s.beyond...), len(s.holds), min(s.left(), s.manager.StoreTimeout))
}

// heldMore is what a call holds that has been granted some of several keys.
type heldMore struct {
	Held
	more []*Hold
}

// Holds appends those of the several keys as well.
func (h *heldMore) Holds(others []*Hold) []*Hold {
	others = append(others, h.more...)
	if h.Held == nil {
		return others
	}
	return h.Held.Holds(others)
}

// try asks for all keys that are left, or for the first few of them, and waits for none that is
// taken. It keeps those before the first one that it does not get. It returns why it did not get
// that one, or nil.
func (s *several) try() *Refusal {
	mgr, now, patience := s.manager, time.Now(), min(s.left(), s.manager.StoreTimeout)
	if s.ctx.Err() != nil {
		return overdue(s.ctx)
	}
	keys := s.keys[len(s.holds):]
	if mgr.pooled {
		keys = keys[:min(len(keys), atOnce)]
	}
	all := tries{waiters: make([]waiter, len(keys)), decided: make(chan struct{}, len(keys))}
	willing := mgr.all != nil && patience >= driver.Promptness && leaves(s.ctx, driver.Promptness)
	all.join(mgr, s.terms, keys, s.spans[len(s.holds):], now, willing)
	got, r := all.await(s.ctx, patience)
	for _, h := range got {
		s.keep(h)
	}
	if r != nil && s.final(r) {
		all.awaitDecisions(s.ctx, min(time.Since(now), s.left()))
	}
	s.beyond = all.leave(len(got))
	mgr.heardLate(s.ctx, r, now)
	return r
}

// tries are callers for several keys who would not wait: in truth one caller.
type tries struct {
	waiters []waiter // of the keys in their order, without those that there is no need to ask for
	decided chan struct{}
}

// join puts a waiter into the line of each key, up to the first key that is known to be taken:
// what came after that would be returned. If the caller's goroutine is willing, it begins the
// requests.
func (t *tries) join(mgr *Manager, terms *Terms, keys []string, spans []spanned, now time.Time, willing bool) {
	var asking []*request
	var asked []driver.Request
	for i, key := range keys {
		w := &t.waiters[i]
		*w = waiter{terms: terms, since: now, tries: true, ready: t.decided, trace: (*driver.Trace)(spans[i].Trace())}
		if !mgr.life.enter(true) {
			w.refusal = refuse(Closed)
		} else if rq, r := mgr.join(w, key, willing); r != nil {
			w.refusal = r
			mgr.life.leave()
		} else if rq != nil {
			if asking == nil {
				asking, asked = make([]*request, 0, len(keys)), make([]driver.Request, 0, len(keys))
			}
			w.begins = true
			asking, asked = append(asking, rq), append(asked, rq.Request)
		}
		if _, r := w.outcome(); r != nil {
			t.waiters = t.waiters[:i+1]
			break
		}
	}
	if asking == nil {
		return
	}
	begun := make([]driver.Begun, len(asked))
	mgr.all.BeginAll(asked, now, begun)
	for i, n := 0, 0; n < len(asked); i++ {
		if w := &t.waiters[i]; w.begins {
			w.line.begun(asking[n], w, begun[n].Grant, begun[n].Done, begun[n].Err)
			n++
		}
	}
}

// outcome returns how the waiter was decided; nothing if it was not yet.
func (w *waiter) outcome() (*Hold, *Refusal) {
	if w.line == nil { // it has never joined
		return nil, w.refusal
	}
	w.line.shard.mu.Lock()
	defer w.line.shard.mu.Unlock()
	return w.hold, w.refusal
}

// await waits until it is known which keys there are before the first one that is not to be had,
// at most for patience. It returns their holds, and why that one is not to be had, or nil if
// there are all.
func (t *tries) await(ctx context.Context, patience time.Duration) (got []*Hold, r *Refusal) {
	got = make([]*Hold, 0, len(t.waiters))
	var late *time.Timer
	for over := false; len(got) < len(t.waiters); {
		w := &t.waiters[len(got)]
		h, r := w.outcome()
		switch {
		case h != nil:
			got = append(got, h)
			continue
		case r != nil:
			return got, r
		case over && ctx.Err() != nil:
			return got, overdue(ctx)
		case over:
			w.line.leave(w, false)
			continue
		case late == nil:
			late = time.NewTimer(patience - time.Since(w.since))
			defer late.Stop()
		}
		select {
		case <-t.decided:
		case <-late.C:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	if ctx.Err() != nil {
		return nil, overdue(ctx)
	}
	return got, nil
}

// awaitDecisions waits until all tries are decided, at most for patience.
func (t *tries) awaitDecisions(ctx context.Context, patience time.Duration) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for i := range t.waiters {
		for {
			if h, r := t.waiters[i].outcome(); h != nil || r != nil {
				break
			}
			select {
			case <-t.decided:
			case <-late.C:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// leave takes the tries from the one of index from on out of their lines, and returns what they were granted.
func (t *tries) leave(from int) (holds []*Hold) {
	for i := from; i < len(t.waiters); i++ {
		w := &t.waiters[i]
		if w.line == nil {
			continue
		}
		if h := w.line.leaveTry(w); h != nil {
			holds = append(holds, h)
		} else {
			w.line.manager.life.leave()
		}
	}
	return holds
}

// leaveTry takes a caller out of the line who can no longer use the key, and returns its hold if
// it has been granted one. A request that does not wait for the key may go on: its answer is
// about to come, and if it is a grant that nobody wants, it is returned.
func (ln *line) leaveTry(w *waiter) *Hold {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	if !w.decided() {
		ln.remove(w)
		if ln.asking != nil && ln.asking.Wait {
			ln.left()
		} else {
			ln.advance()
		}
	}
	return w.hold
}
