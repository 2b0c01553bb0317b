package manager

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// ReleaseAll releases several holds of one call, as Release does, but asks the store once for
// all. It returns what Release would return for each.
func ReleaseAll(ctx context.Context, holds []*Hold) []*Refusal {
	now := time.Now()
	all := partAll(holds, now)
	var sent []<-chan struct{}
	for i := range all {
		if p := &all[i]; p.next == endsLease && p.hold.terms.Sent {
			sent = append(sent, p.hold.send(ctx, now, p.why))
			p.hold.lease.line.manager.life.leave()
			p.next = stillUsed // by that goroutine
		}
	}
	all.finish(ctx, now, len(all), true)
	if len(sent) > 0 {
		depart(sent...)
	}
	out := make([]*Refusal, len(all))
	for i := range all {
		out[i] = all[i].why
	}
	return out
}

// GiveUp releases the holds of a call that cannot have all that it needs, without MinHold. It waits
// for the store for patience at most, or until ctx ends: then the release goes on in the
// background.
func GiveUp(ctx context.Context, holds []*Hold, patience time.Duration) {
	giveUp(ctx, holds, len(holds), patience)
}

// giveUp is GiveUp for holds of which the first few were reported as granted.
func giveUp(ctx context.Context, holds []*Hold, granted int, patience time.Duration) {
	done := abandon(holds, granted)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// giveBackAll releases holds in the background that were never reported as granted.
func giveBackAll(holds []*Hold) {
	if len(holds) > 0 {
		abandon(holds, 0)
	}
}

// abandon releases holds in the background, and closes the channel after that. The first few were
// reported as granted.
func abandon(holds []*Hold, granted int) <-chan struct{} {
	now, done := time.Now(), make(chan struct{})
	all := partAll(holds, now)
	finish := func() {
		all.finish(context.Background(), now, granted, false)
		close(done)
	}
	for _, p := range all {
		if p.next == endsLease {
			p.hold.lease.line.manager.calls.Go(finish) // its own call is not done yet, so Close waits
			return done
		}
	}
	finish()
	return done
}

// partings are holds that are given up together.
type partings []struct {
	hold *Hold
	next parting
	why  *Refusal // why it had ended before, or what the release came to
	span spanned  // of the release
}

// partAll gives up one handle of each hold: nobody else waits longer for one because of another.
func partAll(holds []*Hold, now time.Time) partings {
	all := make(partings, len(holds))
	for i, h := range holds {
		all[i].hold = h
		all[i].next, all[i].why = h.part(now)
	}
	return all
}

// finish ends the leases that are to end at the store, and counts the holds out. The first few
// were reported as granted. MinHold counts only if the holds were used.
func (all partings) finish(ctx context.Context, now time.Time, granted int, used bool) {
	ends := make([]driver.Ending, 0, len(all))
	for i := range all {
		if p := &all[i]; p.next == endsLease {
			p.span.ctx, p.span.Span = p.hold.terms.Signals.Release(ctx, p.hold.span)
			keep := time.Duration(0)
			if used {
				keep = p.hold.terms.MinHold
			}
			ends = append(ends, p.hold.lease.ending(keep))
		}
	}
	var errs []error
	if len(ends) > 0 {
		errs = all[0].hold.lease.line.manager.endAll(ctx, ends, now)
	}
	for i, n := 0, 0; i < len(all); i++ {
		p := &all[i]
		if p.next == endsLease {
			p.hold.lease.line.finished(p.hold.lease, ends[n], errs[n])
			if said := p.hold.gaveBack(p.span.ctx, p.span.Span, errs[n]); p.why == nil {
				p.why = said
			}
			n++
		}
		if p.next == stillUsed {
			continue
		}
		if i < granted {
			p.hold.released(ctx, now, p.why)
		}
		p.hold.lease.line.manager.life.leave()
	}
}

// endAll releases leases at the store in one call, within ctx and StoreTimeout.
func (mgr *Manager) endAll(ctx context.Context, ends []driver.Ending, now time.Time) []error {
	if len(ends) == 1 {
		return []error{mgr.end(ctx, ends[0], now)}
	}
	rctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
	defer cancel()
	errs := mgr.session.Release(rctx, ends)
	for _, err := range errs {
		mgr.heard(ctx, err)
	}
	return errs
}
