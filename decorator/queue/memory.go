package queue

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// Memory keeps queues in the memory of this process: for a program that is one process, and
// for tests, where time goes by package testing/synctest. What is queued ends with the
// process. It is safe for concurrent use and starts no goroutine. The zero value is not
// usable: see [NewMemory]. Contexts are looked at by Listen alone: nothing else waits.
type Memory struct {
	mu     sync.Mutex
	queues map[string]*queueState
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{queues: make(map[string]*queueState)} }

// Open returns the queue of that name. Handles of one name share their items; each
// has its own rules.
func (m *Memory) Open(name string, r Rules) (Queue, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.queues[name]
	if s == nil {
		s = &queueState{lines: make(map[string]*line), listeners: make(map[*listener]bool)}
		m.queues[name] = s
	}
	return &memoryQueue{queueState: s, rules: r}, nil
}

// queueState is one queue.
type queueState struct {
	mu        sync.Mutex
	lines     map[string]*line // by the digest of their keys
	due       agenda
	idle      []idleSince // in order
	listeners map[*listener]bool
}

// idleSince notes that a line had no items from then on.
type idleSince struct {
	digest string
	since  time.Time
}

// memoryQueue is a queueState with rules.
type memoryQueue struct {
	*queueState
	rules Rules
}

// Shards returns 1.
func (q *memoryQueue) Shards() int { return 1 }

// Append adds an item.
func (q *memoryQueue) Append(_ context.Context, key string, n New) (Place, error) {
	if err := n.Validate(key); err != nil {
		return Place{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.forget(now)
	l := q.lines[Digest(key)]
	if l == nil {
		l = &line{key: key, sequence: now.UnixMicro() - 1, byID: make(map[string]*entry), at: -1}
		q.lines[Digest(key)] = l
	}
	l.prune(q.rules, now)
	if e := l.byID[n.ID]; e != nil {
		return Place{ID: ItemName(key, n.ID), Sequence: e.sequence, Ahead: l.ahead(e)}, nil
	}
	if len(l.items) >= q.rules.MaxLength {
		return Place{}, ErrFull
	}
	l.sequence++
	e := &entry{id: n.ID, sequence: l.sequence, payload: bytes.Clone(n.Payload), trace: n.Trace, added: now}
	l.items, l.byID[n.ID] = append(l.items, e), e
	if len(l.items) == 1 {
		q.settle(l, now)
	}
	return Place{ID: ItemName(key, n.ID), Sequence: e.sequence, Ahead: len(l.items) - 1}, nil
}

// Claim names keys that are due.
func (q *memoryQueue) Claim(_ context.Context, r ClaimRequest) (Claims, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, key := range r.Keep {
		if l := q.lines[Digest(key)]; l != nil && l.worker == r.Worker {
			q.schedule(l, now.Add(r.For))
		}
	}
	for _, key := range r.Return {
		if l := q.lines[Digest(key)]; l != nil && l.worker == r.Worker {
			q.settle(l, now)
		}
	}
	c := Claims{Next: -1}
	for len(q.due) > 0 {
		l := q.due[0]
		if l.due.After(now) || len(c.Keys) == r.Max {
			c.Next = max(l.due.Sub(now), 0)
			break
		}
		l.worker = r.Worker
		q.schedule(l, now.Add(r.For))
		c.Keys = append(c.Keys, l.key)
	}
	return c, nil
}

// Begin begins the first item.
func (q *memoryQueue) Begin(_ context.Context, h Holder) (Step, error) {
	if err := h.Validate(); err != nil {
		return Step{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	l := q.lines[Digest(h.Key)]
	if l == nil {
		return Step{}, nil
	}
	switch {
	case h.Token < l.token || h.Token == l.token && l.over && l.last != runName{}:
		return Step{}, ErrSuperseded
	case h.Token == l.token && l.over:
		return l.step(Step{}, now), nil // it has found nothing
	case h.Token > l.token:
		l.token, l.over, l.running, l.last = h.Token, false, false, runName{}
	}
	s := q.begin(l, h, now)
	l.over = s.Item == nil
	return s, nil
}

// begin is what Begin does, and an End that is to begin the next item.
func (q *memoryQueue) begin(l *line, h Holder, now time.Time) (s Step) {
	for len(l.items) > 0 && !l.parked && s.Item == nil {
		head := l.items[0]
		switch {
		case l.running: // the answer was lost
		case head.attempts >= q.rules.Attempts:
			s.Died += l.kill(q.rules, now)
			continue
		case now.Before(l.next):
			q.settle(l, now)
			return l.step(s, now)
		default:
			head.attempts++
		}
		l.running, l.over, l.worker, l.begun = true, false, h.Worker, now
		if q.rules.Spacing > 0 {
			l.next = now.Add(q.rules.Spacing + h.Grace)
		}
		s.Item = &Item{
			ID: ItemName(l.key, head.id), Sequence: head.sequence, Attempt: head.attempts,
			Payload: bytes.Clone(head.payload), Trace: head.trace, Age: now.Sub(head.added),
		}
		q.schedule(l, now.Add(h.For))
	}
	if s.Item == nil {
		q.settle(l, now)
	}
	l.prune(q.rules, now)
	return l.step(s, now)
}

// End records how a run has ended.
func (q *memoryQueue) End(_ context.Context, h Holder, e Ending) (Step, error) {
	if err := h.Validate(); err != nil {
		return Step{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	l := q.lines[Digest(h.Key)]
	if l == nil || h.Token != l.token {
		return Step{}, ErrSuperseded
	}
	ended := runName{e.Sequence, e.Attempt}
	var died int
	switch {
	case l.running && l.run() == ended:
		head := l.items[0]
		if q.rules.Spacing > 0 {
			l.next = l.begun.Add(q.rules.Spacing + e.Late)
		}
		switch {
		case e.Outcome == Done:
			l.end(head, Ended, now)
		case e.Outcome == Dead, head.attempts >= q.rules.Attempts:
			died = l.kill(q.rules, now)
		default:
			if at := now.Add(e.After); at.After(l.next) {
				l.next = at
			}
		}
		l.running, l.over, l.last = false, true, ended
	case l.last != ended:
		return Step{}, ErrSuperseded
	case l.running: // its answer was lost, with the next item in it
		return q.begin(l, h, now), nil
	}
	if e.Next {
		s := q.begin(l, h, now)
		s.Died += died
		return s, nil
	}
	q.settle(l, now)
	l.prune(q.rules, now)
	return l.step(Step{Died: died}, now), nil
}

// Status tells of an item.
func (q *memoryQueue) Status(_ context.Context, id string) (Status, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, e := q.find(id, time.Now())
	if e == nil {
		return Status{}, ErrUnknown
	}
	s := Status{State: e.state, Sequence: e.sequence, Attempts: e.attempts, Ended: e.ended}
	if e.state != Waiting {
		s.Parked = l.parked && l.items[0] == e
		return s, nil
	}
	s.Ahead = l.ahead(e)
	if l.running && s.Ahead == 0 {
		s.State = Running
	}
	return s, nil
}

// Parked returns parked keys.
func (q *memoryQueue) Parked(_ context.Context, limit int) ([]Parked, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []Parked
	for _, l := range q.lines {
		if l.parked {
			head := l.items[0]
			all = append(all, Parked{ID: ItemName(l.key, head.id), Key: l.key, Sequence: head.sequence, Since: head.ended, Left: len(l.items)})
		}
	}
	slices.SortFunc(all, func(a, b Parked) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) })
	return all[:min(len(all), max(limit, 0))], nil
}

// Resume lets a parked key go on.
func (q *memoryQueue) Resume(_ context.Context, id string, how Resumption) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	l, e := q.find(id, now)
	switch {
	case e == nil:
		return ErrUnknown
	case !l.parked || l.items[0] != e:
		return ErrNotParked
	}
	l.parked = false
	switch how {
	case Repeat:
		e.state, e.ended, e.attempts = Waiting, time.Time{}, 0
	case Drop:
		l.items = l.items[1:]
		delete(l.byID, e.id)
	default:
		l.end(e, GivenUp, now)
	}
	q.settle(l, now)
	return nil
}

// Stats counts what there is.
func (q *memoryQueue) Stats(context.Context) (Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var s Stats
	now := time.Now()
	for _, l := range q.lines {
		s.Length += len(l.items)
		if len(l.items) > 0 {
			s.Oldest = max(s.Oldest, now.Sub(l.items[0].added))
		}
		if l.parked {
			s.Parked++
		}
	}
	return s, nil
}

// find returns an item that is kept; nil if there is none.
func (q *memoryQueue) find(name string, now time.Time) (*line, *entry) {
	digest, id, _ := SplitName(name)
	l := q.lines[digest]
	if l == nil {
		return nil, nil
	}
	l.prune(q.rules, now)
	return l, l.byID[id]
}

// forget frees lines that have been idle for long, at most a few for each call.
func (q *memoryQueue) forget(now time.Time) {
	for range 4 {
		if len(q.idle) == 0 || now.Sub(q.idle[0].since) < q.rules.KeepFor {
			return
		}
		if l := q.lines[q.idle[0].digest]; l != nil && len(l.items) == 0 && l.idle == q.idle[0].since {
			delete(q.lines, q.idle[0].digest)
		}
		q.idle = q.idle[1:]
	}
}

// settle gives up the claim of a line that has no run, and schedules it. s.mu is held.
func (s *queueState) settle(l *line, now time.Time) {
	l.worker = ""
	if len(l.items) == 0 || l.parked {
		if l.at >= 0 {
			heap.Remove(&s.due, l.at)
		}
		if len(l.items) == 0 {
			l.idle = now
			s.idle = append(s.idle, idleSince{Digest(l.key), now})
		}
		return
	}
	at := now
	if l.next.After(now) {
		at = l.next
	}
	s.schedule(l, at)
	for e := range s.listeners {
		e.tell(at)
	}
}

// schedule puts a line where it is due then. s.mu is held.
func (s *queueState) schedule(l *line, due time.Time) {
	l.due = due
	if l.at < 0 {
		heap.Push(&s.due, l)
	} else {
		heap.Fix(&s.due, l.at)
	}
}
