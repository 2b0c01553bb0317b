package queue

import (
	"context"
	"sync"
	"time"
)

// line is the queue of one key.
type line struct {
	key      string
	sequence int64 // the last that was given

	token   int64   // the largest that has come
	running bool    // token has begun items[0]
	over    bool    // token is used up: it has found nothing to begin, or ended a run and begun no other
	last    runName // that token ended last
	begun   time.Time
	next    time.Time // the earliest next start

	items  []*entry          // that have not ended; the first is dead if parked
	parked bool              // until Resume
	ended  []*entry          // that are kept, in the order in which they ended
	byID   map[string]*entry // items and ended
	idle   time.Time         // since when there are no items

	worker string // whose claim it is; empty if nobody's
	due    time.Time
	at     int // its place in the agenda; -1 if it is not there
}

// runName names a run beside its token.
type runName struct {
	sequence int64
	attempt  int
}

// entry is an item.
type entry struct {
	id       string
	sequence int64
	payload  []byte
	trace    string
	added    time.Time
	attempts int
	state    State // never Running
	ended    time.Time
}

func (l *line) run() runName { return runName{l.items[0].sequence, l.items[0].attempts} }

// ahead is how many items are before e, which may have ended.
func (l *line) ahead(e *entry) int {
	for i, other := range l.items {
		if other == e {
			return i
		}
	}
	return 0
}

// end removes the first item from the queue.
func (l *line) end(e *entry, s State, now time.Time) {
	e.state, e.ended, e.payload = s, now, nil
	l.items = l.items[1:]
	l.ended = append(l.ended, e)
}

// kill makes the first item dead, and says how many have died with it.
func (l *line) kill(r Rules, now time.Time) (died int) {
	l.running = false
	switch r.OnDead {
	case Hold:
		l.parked = true
		l.items[0].state, l.items[0].ended = GivenUp, now
		return 1
	case Cascade:
		died = len(l.items)
		for len(l.items) > 0 {
			l.end(l.items[0], GivenUp, now)
		}
		return died
	}
	l.end(l.items[0], GivenUp, now)
	return 1
}

// prune forgets what has ended and is kept no more.
func (l *line) prune(r Rules, now time.Time) {
	for len(l.ended) > r.KeepCount || len(l.ended) > 0 && now.Sub(l.ended[0].ended) >= r.KeepFor {
		delete(l.byID, l.ended[0].id)
		l.ended[0], l.ended = nil, l.ended[1:]
	}
}

// step completes what an operation returns.
func (l *line) step(s Step, now time.Time) Step {
	s.Left, s.Parked = len(l.items), l.parked
	if s.Item == nil && s.Left > 0 && !s.Parked {
		s.In = max(l.next.Sub(now), 0)
	}
	return s
}

// agenda is a heap of lines by when they are due.
type agenda []*line

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due.Before(a[j].due) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i]; a[i].at, a[j].at = i, j }

// Push is of heap.Interface.
func (a *agenda) Push(x any) {
	l := x.(*line)
	l.at = len(*a)
	*a = append(*a, l)
}

// Pop is of heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	l := (*a)[last]
	l.at = -1
	(*a)[last], *a = nil, (*a)[:last]
	return l
}

// listener hears of keys that get due: of the earliest, if there are several.
type listener struct {
	mu   sync.Mutex
	at   time.Time // zero: nothing to tell
	knew chan struct{}
}

func (e *listener) tell(at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() || at.Before(e.at) {
		e.at = at
	}
	select {
	case e.knew <- struct{}{}:
	default:
	}
}

// Listen tells of keys that get due, until ctx ends.
func (q *memoryQueue) Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	e := &listener{knew: make(chan struct{}, 1)}
	q.mu.Lock()
	q.listeners[e] = true
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.listeners, e)
	}()
	up()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.knew:
		}
		e.mu.Lock()
		at := e.at
		e.at = time.Time{}
		e.mu.Unlock()
		due(0, max(time.Until(at), 0))
	}
}
