package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// tenure is a lease that this process has at the store. Callers hold it one
// after the other, or together if it is a share. It is guarded by the mutex of its
// line's shard, but for renewer's own entry.
type tenure struct {
	line *line
	next *tenure // of the line
	driver.ID
	Ref      string
	Token    int64
	Deadline time.Time
	hold     *hold         // who hold, linked; nil while the process decides on the next one
	single   hold          // room for the first of them
	length   time.Duration // the longest TTL that it was granted or renewed for

	// If contended: when the first word of that came, or one during a renewal. Otherwise: before the latest
	// word of the store that nobody else waits was asked for.
	heardAt instant

	renewAt instant
	leeway  time.Duration // how much sooner than renewAt it may travel with others
	entry   entry

	lingers instant // until when it is kept although nobody holds; zero if it is not

	handoffs   int16 // holds on this grant, less one
	gone       bool  // the line has parted from it
	contended  bool  // another process is known to wait
	closed     bool  // nobody joins those who hold
	lowered    bool  // from an exclusive lease to a share
	renewing   bool
	refreshing bool // it is being renewed before it is handed on
	sent       bool // its release was, before its caller knows the answer
	followed   bool // a request was sent after that
}

const (
	// block is how many holds share one grant of the store, each with its own
	// fencing token.
	block = 1024
)

func newTenure(ln *line, g driver.Grant, ttl time.Duration, sent, now time.Time) *tenure {
	tn := &tenure{line: ln, ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline, handoffs: -1, length: ttl}
	tn.heard(g.Contended, at(sent), now)
	return tn
}

// heard takes in whether another process waits, as the store said in answer to
// something that was sent at that time.
func (tn *tenure) heard(waiting bool, sent instant, now time.Time) {
	switch {
	case !waiting && tn.contended && 0 < sent && sent <= tn.heardAt:
		// The answer may be older than what was pushed meanwhile.
	case !waiting:
		tn.contended, tn.heardAt = false, sent
	case !tn.contended || tn.renewing:
		tn.contended, tn.heardAt = true, at(now)
	}
}

func (tn *tenure) ending(keep time.Duration) driver.Ending {
	return driver.Ending{ID: tn.ID, Ref: tn.Ref, Token: tn.Token, Deadline: tn.Deadline, Keep: keep}
}

// renewal asks for the lease to last. What was lowered is asked to be a share each time:
// the answer to the first time may have been lost, and the question too.
func (tn *tenure) renewal(ttl time.Duration) driver.Renewal {
	return driver.Renewal{ID: tn.ID, Ref: tn.Ref, Token: tn.Token, TTL: ttl, Share: tn.lowered}
}

// current reports whether the process still has this lease.
func (tn *tenure) current() bool { return !tn.gone }

// joint returns the share that readers may join, or nil.
func (ln *line) joint() *tenure {
	for tn := ln.tenures; tn != nil; tn = tn.next {
		if !tn.closed && !tn.contended && tn.handoffs+1 < block {
			return tn
		}
	}
	return nil
}

// admit lets readers join a share that the process has.
func (ln *line) admit() {
	if ln.mode != Shared {
		return
	}
	now := time.Now()
	for ln.first != nil {
		tn := ln.joint()
		if tn == nil || tn.refreshing || tn.hold == nil {
			return
		}
		if ln.move(tn, ln.situation(tn, nil, now), now) != stepServe {
			return
		}
	}
}

// ttl is the longest TTL of those who hold and want the lease to go on.
func (tn *tenure) ttl() time.Duration {
	var ttl time.Duration
	for h := tn.hold; h != nil; h = h.next {
		if !h.over && (!h.plan.NoRenew || ttl == 0) {
			ttl = max(ttl, h.plan.TTL)
		}
	}
	return ttl
}

// take begins a tenure and serves the line from it.
func (ln *line) take(tn *tenure, now time.Time) {
	tn.next, ln.tenures = ln.tenures, tn
	ln.held++
	ln.move(tn, ln.situation(tn, nil, now), now)
}

// forget parts the line from a lease.
func (ln *line) forget(tn *tenure, now time.Time) {
	link := &ln.tenures
	for *link != tn {
		link = &(*link).next
	}
	*link = tn.next
	tn.gone = true
	tn.settle()
	ln.held--
	ln.lastHeld = at(now)
	ln.engine.renewer.remove(tn)
}

// lose takes note that a lease is gone at the store or past its deadline.
func (ln *line) lose(tn *tenure) {
	ln.forget(tn, time.Now())
	ln.engine.releaser.add(tn.ending(0), tn.length)
	for h := tn.hold; h != nil; h = h.next {
		h.lose()
	}
	ln.advance()
}

// expire ends a hold whose time is over, and the lease with it unless others share
// that.
func (tn *tenure) expire(h *hold, now time.Time) {
	if driver.Remaining(tn.Deadline, now) > 0 && (tn.hold != h || h.next != nil) {
		h.lose()
		return
	}
	tn.line.lose(tn)
}

// giveBack releases a lease at the store without anybody waiting for it.
func (ln *line) giveBack(tn *tenure, keep time.Duration) {
	now := time.Now()
	ln.forget(tn, now)
	ln.ending++
	ln.engine.calls.Go(func() { _ = ln.finish(context.Background(), tn, keep, now) })
}

// finish releases a lease that the line has parted from at the store, within ctx
// and the store's time, and lets the line go on. What could not be asked in time
// goes on in the background.
func (ln *line) finish(ctx context.Context, tn *tenure, keep time.Duration, now time.Time) error {
	e, end := ln.engine, tn.ending(keep)
	err := e.end(ctx, end, now)
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		e.releaser.add(end, tn.length)
	}
	ln.shard.mu.Lock()
	ln.ending--
	ln.confirm(tn)
	ln.advance()
	ln.shard.mu.Unlock()
	return err
}

// end releases a lease at the store, within ctx and the store's time.
func (e *Engine) end(ctx context.Context, end driver.Ending, now time.Time) (err error) {
	defer func() { e.heard(ctx, err) }()
	if e.prompt != nil && ctx.Err() == nil && leaves(ctx, driver.Promptness) {
		if done, err := e.prompt.End(end, now); done {
			return err
		}
	}
	rctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	return e.session.Release(rctx, []driver.Ending{end})[0]
}
