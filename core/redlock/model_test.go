package redlock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// model is a node in plain Go: what the scripts do, in one process. Its clock is the
// process's, so that in a synctest bubble time is virtual, unless a test gives another.
type model struct {
	label string
	clock func() time.Time
	logic bool // tokens and tickets come from counters alone: its clock stands at 0
	mu    sync.Mutex
	boot  int64
	keys  map[string]*record
	subs  map[string]map[*subscription]bool
	saw   map[acceptance]bool // all that it ever accepted, kept when it is wiped; nil: not kept
}

// acceptance is a token that a node has accepted with its vote for an owner.
type acceptance struct {
	owner driver.Owner
	token int64
}

type subscription struct{ message func(string) }

func newModel(label string) *model {
	return &model{label: label, clock: time.Now, keys: make(map[string]*record), subs: make(map[string]map[*subscription]bool)}
}

func (m *model) name() string { return m.label }

// wipe makes the node forget everything.
func (m *model) wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = 0
	clear(m.keys)
}

func (m *model) micros() int64 {
	if m.logic {
		return 0
	}
	return m.clock().UnixMicro()
}

// execute does what a script does.
func (m *model) execute(c *command) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	r := new(record)
	if was := m.keys[c.key]; was != nil {
		r = was.clone()
	}
	if r.taken {
		r.expires = sooner(r.expires, now.Add(r.length))
		if !r.expires.After(now) {
			if !r.kept {
				r.bury(r.owner)
			}
			r.clear()
		}
	}
	writes := true // what has run out is written down with what changes, not by itself

	st, head, firm := statusDenied, false, false
	switch c.op {
	case opVote:
		st, head, firm = m.vote(c, r, now)
	case opAccept:
		if r.over(c.owner) {
			st = statusOver
		} else if c.create && !r.taken && c.token > r.token {
			r.owner, r.taken, r.channel = c.owner, true, c.channel
		}
		if st != statusOver && r.has(c.owner) && (c.token > r.token || c.token == r.accepted) {
			st = statusGranted
			r.accept(c.token, now)
			r.extend(now, c.ttl)
		}
		if st != statusDenied || c.create {
			r.drop(c.owner)
		}
	case opYield:
		if writes = r.has(c.owner) && (r.accepted == 0 || r.accepted == c.token); writes {
			r.clear()
			m.free(r, c.owner, now)
		}
	case opRenew:
		st = statusLost
		if r.has(c.owner) && c.token > r.token {
			r.accept(c.token, now)
			r.drop(c.owner)
		}
		if writes = r.has(c.owner) && r.accepted > 0; writes { // and is not made anew
			st = statusGranted
			r.extend(now, c.ttl)
			r.first(now)
		}
	case opEnd:
		switch {
		case r.has(c.owner):
			st = statusEnded
			till := r.since.Add(c.keep)
			if c.keep > 0 && till.After(now) {
				r.owner, r.channel, r.kept, r.expires, r.length = driver.Owner{}, "", true, till, till.Sub(now)
			} else {
				r.clear()
			}
		case slices.ContainsFunc(r.queue, func(e entry) bool { return e.owner == c.owner }):
			st = statusWithdrawn
		case r.token == 0:
			st = statusAbsent
		default:
			st = statusNotMine
		}
		r.bury(c.owner)
		r.drop(c.owner)
		if !r.taken || st == statusEnded {
			m.free(r, c.owner, now)
		}
	case opOust:
		st = statusAbsent
		if r.accepted > 0 && r.accepted <= c.token {
			st = statusEnded
			if !r.kept {
				r.bury(r.owner)
				m.tell(r.channel, pushLost, r.owner)
			}
			r.clear()
			m.free(r, driver.Owner{}, now)
		}
		r.token, r.ousted = max(r.token, c.token), max(r.ousted, c.token)
	case opInspect, opProbe:
		writes = false
	}
	if writes {
		m.keys[c.key] = r
	}
	if m.saw != nil && r.accepted != 0 {
		m.saw[acceptance{r.owner, r.accepted}] = true
	}
	a := answer{
		status: st, token: r.token, ticket: r.ticket, clock: m.micros(), waiting: r.others(c.owner),
		first: head, firm: firm, boot: m.boot,
	}
	if r.taken {
		a.left = r.expires.Sub(now)
	}
	switch {
	case r.has(c.owner):
		a.accepted = r.accepted
	case r.taken && !r.kept && r.accepted > 0:
		a.taker.channel = r.channel
		if owner := string(r.owner[:]); strings.HasPrefix(r.traced, owner) {
			a.taker.trace = r.traced[len(owner):]
		}
	}
	if c.op == opEnd {
		a = answer{status: st, clock: a.clock, boot: bootUntold}
		if st != statusEnded {
			a.token, a.ousted = r.token, r.ousted
		}
	}
	if c.op == opInspect {
		a.holder, a.held, a.kept, a.accepted, a.since = r.owner, r.taken, r.kept, r.accepted, r.since
		for _, e := range r.queue {
			if e.live(now) && !r.has(e.owner) {
				a.queue = append(a.queue, e.owner)
			}
		}
	}
	return a
}

func (m *model) vote(c *command, r *record, now time.Time) (st status, head, firm bool) {
	if m.boot == 0 {
		m.boot = m.micros()
	}
	out := c.restartDelay > 0 && now.Before(time.UnixMicro(m.boot).Add(c.restartDelay))
	freed := false
	if c.old != nil {
		if r.has(*c.old) {
			r.clear()
			freed = true
		}
		r.drop(*c.old)
		r.bury(*c.old)
	}
	st = statusDenied
	var holder *driver.Owner
	switch {
	case r.over(c.owner):
		st = statusOver
		r.drop(c.owner)
	case r.has(c.owner):
		st = statusGranted
		r.extend(now, c.ttl)
	case out:
		st = statusOut
	default:
		if c.ticket > 0 {
			r.enqueue(entry{c.owner, c.ticket, now.Add(c.placeTTL), c.placeTTL, c.channel})
			r.ticket = max(r.ticket, c.ticket)
		}
		one := r.first(now)
		head = one != nil && one.owner == c.owner
		if !r.taken && (head || one == nil) {
			st = statusGranted
			r.owner, r.taken, r.kept, r.channel, r.accepted, r.since = c.owner, true, false, c.channel, 0, now
			if c.token > max(r.token, m.boot, m.micros()-(30*time.Minute).Microseconds()) {
				r.accept(c.token, now)
			}
			if c.trace != nil {
				r.traced = string(c.trace.Append(c.owner[:]))
			}
			r.extend(now, c.ttl)
		} else {
			firm = r.kept || r.accepted > 0 || one != nil && !head
			if (head || !c.wait) && r.taken && !r.kept {
				holder = &r.owner
			}
		}
	}
	if freed && !r.taken {
		m.free(r, c.owner, now)
	}
	if holder != nil {
		m.tell(r.channel, pushContended, *holder)
	}
	return st, head, firm
}

func (m *model) free(r *record, self driver.Owner, now time.Time) {
	if e := r.first(now); e != nil && e.owner != self {
		m.tell(e.channel, pushFree, e.owner)
	}
}

func (m *model) tell(channel string, kind byte, o driver.Owner) {
	for s := range m.subs[channel] {
		s.message(string(kind) + string(o[:]))
	}
}

// run implements wire.
func (m *model) run(ctx context.Context, cmds []command) []reply {
	rs := make([]reply, len(cmds))
	for i := range cmds {
		rs[i].answer = m.execute(&cmds[i])
	}
	return rs
}

// scan implements wire.
func (m *model) scan(_ context.Context, prefix string, _ uint64, _ int) (keys []string, next uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.keys {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, 0, nil
}

// listen implements wire. Messages come through a channel of their own, as a socket's.
func (m *model) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	in := make(chan string, 1024)
	s := &subscription{func(payload string) {
		select {
		case in <- payload:
		default:
		}
	}}
	m.mu.Lock()
	if m.subs[channel] == nil {
		m.subs[channel] = make(map[*subscription]bool)
	}
	m.subs[channel][s] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subs[channel], s)
	}()
	up()
	for {
		select {
		case payload := <-in:
			message(payload)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
