package manager

import "slices"

// lineName is a line of a manager for as long as somebody waits in it.
type lineName struct {
	manager *Manager
	key     string
	kind    kind
}

// snapshot is who waits and who holds in a line. Each attempt has terms of its own.
type snapshot struct {
	inLine  []entrant // in the order in which they were first seen
	holding []*Terms
}

// entrant is one stay of a caller in a line.
type entrant struct {
	*waiter
	terms *Terms
	waits bool // it is no try
}

// look compares all lines with what they were at the last look.
func (c *carts) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	after, waits := map[lineName]snapshot{}, map[*Terms]string{}
	for _, mgr := range c.queues {
		for i := range mgr.shards {
			mgr.shards[i].mu.Lock() // all at once: nobody else locks a second one
		}
		holds := map[*Terms][]string{}
		for i := range mgr.shards {
			for key, lk := range mgr.shards[i].locks {
				for ln := lk.lines; ln != nil; ln = ln.next {
					s := ln.snapshot()
					for _, e := range s.inLine {
						if e.waits {
							waits[e.terms] = key
						}
					}
					for _, t := range s.holding {
						holds[t] = append(holds[t], key)
					}
					if !ln.strict {
						after[lineName{mgr, key, ln.kind}] = s
					}
				}
			}
		}
		for i := range mgr.shards {
			mgr.shards[i].mu.Unlock()
		}
		for t, held := range holds {
			key, is := waits[t]
			if larger := slices.DeleteFunc(held, func(other string) bool { return other < key }); is && len(larger) > 0 {
				c.broken = append(c.broken, "who waits for "+key+" holds "+larger[0])
			}
		}
	}
	for name, now := range after {
		now.inLine = arrivals(c.before[name].inLine, now.inLine)
		after[name] = now
		c.passed(name, c.before[name], now)
		for _, t := range c.before[name].holding {
			if _, is := waits[t]; is && !slices.Contains(now.holding, t) {
				c.counts["given back"]++
			}
		}
	}
	c.before = after
}

// arrivals returns who is in line now, those first who were so before, in the order of then.
func arrivals(before, now []entrant) []entrant {
	stayed := slices.DeleteFunc(slices.Clone(before), func(e entrant) bool { return !slices.Contains(now, e) })
	return append(stayed, slices.DeleteFunc(now, func(e entrant) bool { return slices.Contains(stayed, e) })...)
}

// passed finds callers who wait and were passed. c.mu is held.
func (c *carts) passed(name lineName, before, now snapshot) {
	for i, e := range before.inLine {
		if !e.waits || !slices.Contains(now.inLine, e) {
			continue
		}
		for _, h := range now.holding {
			ahead := slices.ContainsFunc(before.inLine[:i], func(other entrant) bool { return other.terms == h })
			if !ahead && !slices.Contains(before.holding, h) {
				c.broken = append(c.broken, "who waits for "+name.key+" was passed")
			}
		}
	}
}

func (ln *line) snapshot() (s snapshot) {
	for w := ln.first; w != nil; w = w.next {
		s.inLine = append(s.inLine, entrant{w, w.terms, !w.try()})
	}
	for l := ln.leases; l != nil; l = l.next {
		for h := l.hold; h != nil; h = h.next {
			if !h.over {
				s.holding = append(s.holding, h.terms)
			}
		}
	}
	return s
}

// holdsOf returns the keys that are held with some terms.
func (c *carts) holdsOf(t *Terms) (keys []string) {
	for _, mgr := range c.queues {
		for i := range mgr.shards {
			s := &mgr.shards[i]
			s.mu.Lock()
			for key, lk := range s.locks {
				for ln := lk.lines; ln != nil; ln = ln.next {
					if slices.Contains(ln.snapshot().holding, t) {
						keys = append(keys, key)
					}
				}
			}
			s.mu.Unlock()
		}
	}
	return keys
}
