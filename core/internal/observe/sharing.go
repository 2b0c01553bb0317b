package observe

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/internal/manager"
)

const (
	// Whoever watches asks engines to report for askFor, and again every askAgain.
	askFor   = 30 * time.Second
	askAgain = 12 * time.Second

	// While it is asked to, an engine reports every reportEvery: a sign of life too.
	reportEvery = 4 * time.Second

	// A caller who waits for longer than longWait for a key which the last report did not name as
	// waited for is reported at once.
	longWait = 200 * time.Millisecond

	// An engine sends burst messages and one more every refill, at most: 30 in any minute.
	burst  = 6
	refill = 2500 * time.Millisecond
)

// sharing is how an engine stands with those who watch elsewhere. It is guarded by the hub's mutex.
type sharing struct {
	until   time.Time // engines elsewhere want reports until then
	hurry   bool      // one has just come, and knows nothing yet
	askAt   time.Time // when to ask next; zero is at once
	sending bool      // a message is under way
	full    time.Time // when the budget has all of burst again

	reported time.Time       // the last report
	number   uint64          // of the last report
	named    map[string]bool // keys that it named as waited for
	seen     uint64          // version of the recorder at the last report, or when there was nothing to hurry for
}

// may reports whether the budget permits a message now.
func (s *sharing) may(now time.Time) bool {
	return !s.sending && s.full.Sub(now) <= (burst-1)*refill
}

// spend takes a message from the budget.
func (s *sharing) spend(now time.Time) {
	if s.full.Before(now) {
		s.full = now
	}
	s.full = s.full.Add(refill)
}

// asked handles a message to those who can report.
func (h *Hub) asked(message []byte) {
	kind, from, rest, ok := Open(message)
	if !ok || kind != kindAsk {
		return
	}
	a, err := parseAsk(rest)
	h.Lock()
	defer h.Unlock()
	if err != nil || h.Closed || h.Self != nil && from == h.Self.Instance {
		return
	}
	s := &h.sharing
	s.hurry = s.hurry || a.now
	if until := time.Now().Add(min(a.valid, askFor)); until.After(s.until) {
		s.until = until
	}
	h.Begin()
}

// listening notes that reports are heard from here on: those of before were missed.
func (h *Hub) listening() {
	h.Lock()
	defer h.Unlock()
	h.sharing.askAt = time.Time{}
}

// share sends what is due: one message at a time.
func (h *Hub) share(ctx context.Context, now time.Time) {
	h.Lock()
	s, rec := &h.sharing, h.Rec
	if rec == nil || !s.may(now) {
		h.Unlock()
		return
	}
	if h.watched() && !now.Before(s.askAt) {
		message := ask{h.Self.Instance, askFor, s.askAt.IsZero()}.encode()
		s.askAt = now.Add(askAgain)
		h.Unlock()
		h.send(ctx, h.asks(), message, now, func() {})
		return
	}
	wanted, due := s.until.After(now), s.hurry || now.Sub(s.reported) >= reportEvery
	seen, named := s.seen, s.named
	s.number++
	number := s.number
	h.Unlock()

	version := rec.Version.Load()
	if !wanted || !due && version == seen {
		return
	}
	keys, left, held, waiting := h.Manager.Look(MaxKeys, MaxCallers)
	if !due {
		long, young := unnamed(keys, named, now, len(h.Prefix))
		if !long {
			h.Lock()
			if !young {
				s.seen = version // until something happens
			}
			h.Unlock()
			return
		}
	}
	p := h.collect(rec, keys, now)
	p.Dropped, p.Held, p.Waiting, p.Number = p.Dropped+left, held, waiting, number
	message, fit := Encode(p, rec.Self.Instance, now)
	rec.takeBack(nil, p.Keys[fit:])
	named = make(map[string]bool)
	for _, k := range p.Keys[:fit] {
		if k.Use.Waiting > 0 {
			named[k.Name] = true
		}
	}
	h.Lock()
	s.hurry, s.seen, s.reported, s.named = false, version, now, named
	h.Unlock()
	h.send(ctx, h.reports(), message, now, func() { rec.takeBack(p.Policies, p.Keys[:fit]) })
}

// unnamed reports whether callers wait for a key that the last report did not name as waited for:
// for long, or not yet.
func unnamed(keys []manager.Key, named map[string]bool, now time.Time, prefix int) (long, young bool) {
	for i := range keys {
		k := &keys[i]
		if len(k.Waiters) == 0 || named[k.Key[prefix:]] {
			continue
		}
		if now.Sub(k.Waiters[0].Since) >= longWait {
			return true, false
		}
		young = true
	}
	return false, young
}

// collect makes a report of keys that are in use, and of what happened since the last one.
func (h *Hub) collect(rec *Recorder, keys []manager.Key, now time.Time) *Report[manager.Key] {
	p := &Report[manager.Key]{Identity: rec.Self.Identity, Started: Started, Version: Version()}
	all := make(Ranking[*manager.Key])
	for i := range keys {
		c, k := all.Of(keys[i].Key[len(h.Prefix):]), &keys[i]
		c.Used = k
		for _, w := range k.Waiters {
			if !w.Terms.Standby {
				c.Waits(w.Since)
			}
		}
		for _, held := range k.Holders {
			c.Holds(held.Since)
		}
	}
	p.Dropped = rec.Keys.Each(now, func(name string, r *Record) {
		if r.unsent != (Delta{}) {
			all.Of(name).Busy = r.unsent.events()
		}
	})
	best := all.Best(MaxKeys)
	p.Dropped += len(all) - len(best)
	for _, c := range best {
		k := ToldKey[manager.Key]{Told: Told{Name: c.Name}}
		rec.Keys.Visit(c.Name, func(r *Record) { k = r.takeUnsent(c.Name, rec.Self) })
		if c.Used != nil {
			k.Use = *c.Used
		}
		p.Keys = append(p.Keys, k)
	}
	rec.Policies.Each(now, func(name string, r *Record) {
		if r.unsent != (Delta{}) && len(p.Policies) < MaxNames {
			p.Policies = append(p.Policies, Told{name, r.unsent, h.SettingsOf(r)})
			r.unsent = Delta{}
		}
	})
	return p
}

// send sends a message in the background. It calls failed if the store did not take it.
func (h *Hub) send(ctx context.Context, topic string, message []byte, now time.Time, failed func()) {
	h.Lock()
	s := &h.sharing
	s.sending = true
	s.spend(now)
	h.Unlock()
	h.running.Go(func() {
		err := h.Gossip.Tell(ctx, topic, message)
		if err != nil {
			failed()
		}
		h.Lock()
		defer h.Unlock()
		s.sending, h.Silent = false, err != nil
	})
}
