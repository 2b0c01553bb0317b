// Package tablelock keeps locks in one table behind one mutex. It is as small as
// a driver can be that keeps the whole contract.
package tablelock

import (
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Store is the table. Its rows and the owners that are over are never deleted.
type Store struct {
	mu      sync.Mutex
	rows    map[string]*row
	over    map[driver.Owner]bool // true: by a release
	changed chan struct{}         // closed and replaced at every change
	news    []func()              // reports to make once mu is released
}

type row struct {
	held     claim // by nobody if session is nil
	token    int64
	until    time.Time
	deadline time.Time
	told     bool // that another session waits
	queue    []claim
}

type claim struct {
	driver.Owner
	session *session
	ttl     time.Duration
}

// New returns an empty table.
func New() *Store {
	return &Store{rows: map[string]*row{}, over: map[driver.Owner]bool{}, changed: make(chan struct{})}
}

// Capabilities implements driver.Driver.
func (*Store) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name: "table", Modes: []driver.Mode{driver.Exclusive}, MinTTL: 10 * time.Millisecond,
		Tokens: driver.ClockTokens, Wake: 100 * time.Millisecond,
	}
}

// Open implements driver.Driver.
func (s *Store) Open(c driver.Config) (driver.Session, error) {
	return &session{store: s, sink: c.Sink}, nil
}

// row locks the table and returns a row that is up to date.
func (s *Store) row(key string, now time.Time) *row {
	s.mu.Lock()
	r := s.rows[key]
	if r == nil {
		r = &row{}
		s.rows[key] = r
	}
	if r.held.session != nil && !now.Before(r.until) {
		s.over[r.held.Owner] = false
		r.held = claim{}
	}
	s.promote(r, now)
	return r
}

// promote grants a free row to the first in its queue.
func (s *Store) promote(r *row, now time.Time) {
	if r.held.session != nil || len(r.queue) == 0 {
		return
	}
	r.held = r.queue[0]
	r.queue = r.queue[1:]
	r.token = max(r.token+1, now.UnixMicro())
	r.until, r.deadline = now.Add(r.held.ttl), driver.Deadline(now, r.held.ttl)
	r.told = r.contended()
}

func (r *row) contended() bool {
	return slices.ContainsFunc(r.queue, func(c claim) bool { return c.session != r.held.session })
}

// end frees the row if owner holds it and drops owner from the queue otherwise.
func (s *Store) end(r *row, owner driver.Owner, released bool, now time.Time) {
	mine := r.held.session != nil && r.held.Owner == owner
	if _, known := s.over[owner]; !known {
		s.over[owner] = mine && released
	}
	if mine {
		r.held = claim{}
	}
	r.queue = slices.DeleteFunc(r.queue, func(c claim) bool { return c.Owner == owner })
	s.promote(r, now)
}

// done unlocks the table, wakes the waiters and makes the reports.
func (s *Store) done(key string, r *row) {
	if h := r.held; h.session != nil && r.told != r.contended() {
		r.told = !r.told
		id, waiting := driver.ID{Key: key, Owner: h.Owner}, r.told
		s.news = append(s.news, func() { h.session.sink.Contended(id, waiting) })
	}
	close(s.changed)
	s.changed = make(chan struct{})
	news := s.news
	s.news = nil
	s.mu.Unlock()
	for _, report := range news {
		report()
	}
}
