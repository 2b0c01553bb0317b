package observe

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/internal/queue"
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
	silent  bool      // the store did not take the last message
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
	kind, from, rest, ok := opened(message)
	if !ok || kind != kindAsk {
		return
	}
	a, err := parseAsk(rest)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || h.closed || h.self != nil && from == h.self.Instance {
		return
	}
	s := &h.sharing
	s.hurry = s.hurry || a.now
	if until := time.Now().Add(min(a.valid, askFor)); until.After(s.until) {
		s.until = until
	}
	h.begin()
}

// listening notes that reports are heard from here on: those of before were missed.
func (h *Hub) listening() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sharing.askAt = time.Time{}
}

// share sends what is due: one message at a time.
func (h *Hub) share(ctx context.Context, now time.Time) {
	h.mu.Lock()
	s, rec := &h.sharing, h.rec
	if rec == nil || !s.may(now) {
		h.mu.Unlock()
		return
	}
	if len(h.watches) > 0 && !now.Before(s.askAt) {
		message := ask{h.self.Instance, askFor, s.askAt.IsZero()}.encode()
		s.askAt = now.Add(askAgain)
		h.mu.Unlock()
		h.send(ctx, h.asks(), message, now, func() {})
		return
	}
	wanted, due := s.until.After(now), s.hurry || now.Sub(s.reported) >= reportEvery
	seen, named := s.seen, s.named
	s.number++
	number := s.number
	h.mu.Unlock()

	version := rec.version.Load()
	if !wanted || !due && version == seen {
		return
	}
	keys, left, held, waiting := h.Queue.Look(MaxKeys, MaxCallers)
	if !due {
		long, young := unnamed(keys, named, now, len(h.Prefix))
		if !long {
			h.mu.Lock()
			if !young {
				s.seen = version // until something happens
			}
			h.mu.Unlock()
			return
		}
	}
	p := h.collect(rec, keys, now)
	p.dropped, p.held, p.waiting, p.number = p.dropped+left, held, waiting, number
	message, fit := p.encode(rec.self.Instance, now)
	rec.takeBack(nil, p.keys[fit:])
	named = make(map[string]bool)
	for _, k := range p.keys[:fit] {
		if k.usage.waiting > 0 {
			named[k.name] = true
		}
	}
	h.mu.Lock()
	s.hurry, s.seen, s.reported, s.named = false, version, now, named
	h.mu.Unlock()
	h.send(ctx, h.reports(), message, now, func() { rec.takeBack(p.policies, p.keys[:fit]) })
}

// unnamed reports whether callers wait for a key that the last report did not name as waited for:
// for long, or not yet.
func unnamed(keys []queue.Key, named map[string]bool, now time.Time, prefix int) (long, young bool) {
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
func (h *Hub) collect(rec *recorder, keys []queue.Key, now time.Time) *report {
	p := &report{identity: rec.self.Identity}
	all := make(candidates)
	for i := range keys {
		all.of(keys[i].Key[len(h.Prefix):]).use(usageOf(&keys[i], rec.self))
	}
	p.dropped = rec.keys.each(now, func(name string, r *record) {
		if r.unsent != (delta{}) {
			all.of(name).busy = r.unsent.events()
		}
	})
	best := all.best(MaxKeys)
	p.dropped += len(all) - len(best)
	for _, c := range best {
		k := toldKey{told: told{name: c.name}}
		rec.keys.visit(c.name, func(r *record) { k = r.takeUnsent(c.name, rec.self) })
		if len(c.used) > 0 {
			k.usage = c.used[0]
		}
		p.keys = append(p.keys, k)
	}
	rec.policies.each(now, func(name string, r *record) {
		if r.unsent != (delta{}) && len(p.policies) < maxNames {
			p.policies = append(p.policies, told{name, r.unsent})
			r.unsent = delta{}
		}
	})
	return p
}

// send sends a message in the background. It calls failed if the store did not take it.
func (h *Hub) send(ctx context.Context, topic string, message []byte, now time.Time, failed func()) {
	h.mu.Lock()
	s := &h.sharing
	s.sending = true
	s.spend(now)
	h.mu.Unlock()
	h.running.Go(func() {
		err := h.gossip.Tell(ctx, topic, message)
		if err != nil {
			failed()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		s.sending, s.silent = false, err != nil
	})
}
