package sqllock

import (
	"context"
	"sync"
	"time"
)

// echo is the payload that a session sends to itself.
const echo = "echo"

// hearing is whether notifications reach a session. They do not if its LISTEN went through a transaction
// pooler, which gives the connection to others right after, or to another database.
type hearing struct {
	mu      sync.Mutex
	now     hears
	listen  int           // how many there were
	changed chan struct{} // closed at the next change
}

// hears says whether a session hears of what is sent to it.
type hears uint8

const (
	unheard hears = iota // it has not been found out, or there is no LISTEN
	heard
	deaf
)

// begin forgets what was known of the LISTEN before, and returns the number of the next one.
func (h *hearing) begin() (listen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = unheard
	h.listen++
	return h.listen
}

// heard notes that a notification of the session to itself has come.
func (h *hearing) heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(heard)
}

// silent notes that none has come by a LISTEN, unless one has, or there is another LISTEN.
func (h *hearing) silent(listen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == unheard && h.listen == listen {
		h.set(deaf)
	}
}

// set changes what is known. The caller has locked h.
func (h *hearing) set(now hears) {
	if h.now = now; h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

func (h *hearing) get() (now hears, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.now, h.changed
}

// tellItself sends a notification to the session, and notes whether it comes by a LISTEN.
func (s *session) tellItself(listen int) {
	_, _, err := runAttempt(s.Ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) {
		_, err := s.exec(ctx, s.d.sql(s.q.notify), channel(s.id), echo)
		return struct{}{}, err
	})
	if err != nil {
		return // nothing is known
	}
	if s.awaitHearing(s.Open, s.timeout/2) == unheard && s.Open.Err() == nil {
		s.hearing.silent(listen)
	}
}

// awaitHearing waits until it is known whether the session hears, for so long at most.
func (s *session) awaitHearing(ctx context.Context, most time.Duration) hears {
	limit := time.NewTimer(most)
	defer limit.Stop()
	for {
		now, changed := s.hearing.get()
		if now != unheard {
			return now
		}
		select {
		case <-changed:
		case <-limit.C:
			return unheard
		case <-ctx.Done():
			return unheard
		}
	}
}
