package redlock

import (
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

type record struct {
	owner    driver.Owner
	taken    bool // by owner, or kept
	kept     bool
	channel  string
	expires  time.Time
	length   time.Duration // the longest that the vote was ever given for at once
	accepted int64
	since    time.Time
	token    int64
	ticket   int64
	ended    []driver.Owner
	ousted   int64
	queue    []entry // by ticket, then owner
	traced   string  // an owner and the trace of its request
}

type entry struct {
	owner   driver.Owner
	ticket  int64
	limit   time.Time
	length  time.Duration
	channel string
}

func (r *record) clone() *record {
	c := *r
	c.ended, c.queue = slices.Clone(r.ended), slices.Clone(r.queue)
	return &c
}

func (r *record) over(o driver.Owner) bool { return slices.Contains(r.ended, o) }

func (r *record) bury(o driver.Owner) {
	if !r.over(o) {
		r.ended = append([]driver.Owner{o}, r.ended[:min(len(r.ended), 7)]...)
	}
}

func (r *record) clear() {
	r.owner, r.taken, r.kept, r.channel, r.expires, r.accepted = driver.Owner{}, false, false, "", time.Time{}, 0
	r.length, r.since = 0, time.Time{}
}

func (r *record) has(o driver.Owner) bool { return r.taken && !r.kept && r.owner == o }

func (r *record) extend(now time.Time, ttl time.Duration) {
	if x := now.Add(ttl); x.After(r.expires) {
		r.expires = x
	}
	r.length = max(r.length, ttl)
}

func (r *record) accept(token int64, now time.Time) {
	if r.accepted == 0 {
		r.since = now.Add(time.Millisecond)
	}
	r.accepted, r.token = token, token
}

func (r *record) drop(o driver.Owner) bool {
	n := len(r.queue)
	r.queue = slices.DeleteFunc(r.queue, func(e entry) bool { return e.owner == o })
	return len(r.queue) < n
}

// live reports whether a place still counts. One that lasts longer than it was given for
// shows that the clock went back.
func (e *entry) live(now time.Time) bool { return sooner(e.limit, now.Add(e.length)).After(now) }

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (r *record) first(now time.Time) *entry {
	for len(r.queue) > 0 && !r.queue[0].live(now) {
		r.queue = r.queue[1:]
	}
	if len(r.queue) == 0 {
		return nil
	}
	return &r.queue[0]
}

func (r *record) enqueue(e entry) {
	if i := slices.IndexFunc(r.queue, func(x entry) bool { return x.owner == e.owner }); i >= 0 {
		e.ticket = r.queue[i].ticket
		r.queue[i] = e
		return
	}
	r.queue = append(r.queue, e)
	slices.SortFunc(r.queue, func(a, b entry) int {
		if a.ticket != b.ticket {
			return int(max(-1, min(1, a.ticket-b.ticket)))
		}
		return slices.Compare(a.owner[:], b.owner[:])
	})
}

func (r *record) others(o driver.Owner) int {
	n := 0
	for _, e := range r.queue {
		if e.owner != o && !r.has(e.owner) {
			n++
		}
	}
	return n
}
