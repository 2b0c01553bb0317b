package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// In MySQL a waiter sleeps until the claim before it ends: the waiter before it, or, if it is the first,
// a holder. For each claim that others may wait for, its session has a named lock of the server, the
// baton of its owner, and releases it after the claim has ended. The waiter sleeps in a GET_LOCK of that
// baton, and asks the server when it gets it. So each end of a claim wakes the one behind it.
//
// A baton decides nothing: rows do. A waiter that has a baton too early asks in vain, and one that never
// gets it finds out by a poll.
//
// A session has its batons on one connection, its keeper, which never waits: so no two can wait for
// each other. A waiter sleeps on another one, which has no baton.

const (
	mostNaps     = 4               // connections of a session on which waiters sleep
	leastPool    = 8               // a smaller one has none for batons
	shareOfPool  = 4               // a session has at most a fourth of a bounded pool, for both
	batonLinger  = 5 * time.Second // how long a connection stays that is not used
	batonCheck   = time.Second     // how often the keeper gives way to those who need its connection
	mostBatons   = 64              // in one statement
	mostTroubles = 3               // refusals, one after the other, after which no batons are used
)

// batons are those of a session, and who sleeps.
type batons struct {
	mu       sync.Mutex
	off      bool                  // they do not work here
	wanted   map[driver.Owner]bool // true if it is to be released once, and taken again
	sleepers int                   // goroutines
	idle     int                   // sleepers without a place

	begin sync.Once     // the keeper
	due   kit.Signal    // wakes the keeper
	more  chan struct{} // has one for each idle sleeper that is no longer counted as such
}

func (b *batons) init(d Dialect) {
	b.off = d != MySQL
	b.wanted = make(map[driver.Owner]bool)
	b.due, b.more = kit.NewSignal(), make(chan struct{}, mostNaps)
}

// nameOf is the name of an owner's baton.
func nameOf(o driver.Owner) string { return "'la:" + ownerHash(o) + "'" }

// takeBaton has the session take the baton of one of its owners, so that others can wait for its end.
// Whoever ends the owner forgets its claim first, and then drops the baton.
func (s *session) takeBaton(o driver.Owner) {
	if s.batons.want(s, o) && !s.claims.has(o) {
		s.batons.drop(o)
	}
}

func (b *batons) want(s *session, o driver.Owner) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.wanted[o]; known || b.off || s.mayPin() < 1 {
		return false
	}
	b.wanted[o] = false
	b.begin.Do(func() { s.Start(s.keepBatons) })
	b.due.Set()
	return true
}

// pass wakes who waits for an owner that has a lease now, and may share it.
func (b *batons) pass(o driver.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.wanted[o]; known {
		b.wanted[o] = true
		b.due.Set()
	}
}

// drop releases the baton of an owner, whose claim has ended.
func (b *batons) drop(o driver.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.wanted[o]; known {
		delete(b.wanted, o)
		b.due.Set()
	}
}

// changes returns the batons to release and to take, by one who has some.
func (b *batons) changes(has map[driver.Owner]bool) (release, take []driver.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o := range has {
		again, wanted := b.wanted[o]
		if (again || !wanted) && len(release) < mostBatons {
			release = append(release, o)
		}
	}
	for o := range b.wanted {
		if !has[o] && len(take) < mostBatons {
			take = append(take, o)
		}
	}
	for _, o := range slices.Concat(release, take) {
		if b.wanted[o] {
			b.wanted[o] = false
		}
	}
	return release, take
}

// stopBatons has the session use no batons any more.
func (s *session) stopBatons() {
	b := &s.batons
	b.mu.Lock()
	b.off = true
	clear(b.wanted)
	b.mu.Unlock()
	b.due.Set()
	s.claims.wakeSleepers()
}

// troubles is how many statements with named locks a server has refused, one after the other.
type troubles int

// answered counts an answer.
func (n *troubles) answered(s *session, err error) {
	if *n++; err == nil || code(err) == "" {
		*n = 0
	}
	if *n == mostTroubles {
		s.stopBatons()
	}
}

// mayPin returns how many connections the session may keep for itself. Batons are not worth more
// than a few of a pool.
func (s *session) mayPin() int {
	switch most := s.db.Stats().MaxOpenConnections; {
	case most == 0:
		return mostNaps + 1
	case most < leastPool:
		return 0
	default:
		return min(most/shareOfPool, mostNaps+1)
	}
}

// pin takes a connection out of the pool, unless half of the pool is in use. It returns nil if there is
// none to be had.
func (s *session) pin() *sql.Conn {
	if p := s.db.Stats(); p.MaxOpenConnections > 0 && p.InUse >= p.MaxOpenConnections/2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.Ctx, s.timeout)
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil
	}
	return conn
}

// crammed reports whether others may need a connection that the session keeps.
func (s *session) crammed() bool {
	p := s.db.Stats()
	return p.MaxOpenConnections > 0 && p.InUse >= p.MaxOpenConnections
}

// closeConn gives a connection back to the pool, or closes it if it may have batons.
func closeConn(conn *sql.Conn, broken bool) {
	if broken {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // which closes it
	}
	_ = conn.Close()
}

// keeper has a session's batons.
type keeper struct {
	*session
	conn  *sql.Conn
	id    int64 // the server's, of the connection
	has   map[driver.Owner]bool
	used  time.Time
	pause time.Duration // after a failure
	troubles
}

// keepBatons takes and releases batons.
func (s *session) keepBatons() {
	k := &keeper{session: s, has: make(map[driver.Owner]bool)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.Ctx.Err() == nil {
		timer.Reset(k.work())
		select {
		case <-s.batons.due:
		case <-timer.C:
		case <-s.Ctx.Done():
		}
	}
	k.leave()
}

// work does what is due, and returns when to do so again.
func (k *keeper) work() time.Duration {
	release, take := k.batons.changes(k.has)
	nothing := len(release)+len(take) == 0
	switch {
	case nothing && k.conn == nil:
		return time.Hour // or when it is woken
	case nothing && k.crammed():
		k.leave()
		return batonCheck
	case nothing && time.Since(k.used) < batonLinger:
		return batonCheck
	case nothing && len(k.has) == 0:
		k.leave()
		return time.Hour
	}
	if k.conn == nil {
		if k.conn = k.pin(); k.conn == nil {
			return batonCheck
		}
	}
	id, done, err := k.change(release, take)
	k.used = time.Now()
	k.answered(k.session, err)
	if err != nil {
		closeConn(k.conn, true) // and all batons with it
		k.conn, k.id = nil, 0
		clear(k.has)
		k.pause = min(max(2*k.pause, 20*time.Millisecond), time.Second)
		return k.pause
	}
	if k.id == 0 {
		k.id = id
	}
	pooled, missed := k.id != id, false
	for i, o := range release {
		delete(k.has, o)
		pooled = pooled || !done[i]
	}
	for i, o := range take {
		if done[len(release)+i] {
			k.has[o] = true
		} else { // somebody has it who waits no longer, or it is left on a connection that was lost
			missed = true
		}
	}
	switch {
	case pooled: // the connection goes through a pooler, and each statement may be another one's
		k.stopBatons()
		closeConn(k.conn, true)
		k.conn = nil
		clear(k.has)
		return time.Hour
	case missed:
		k.pause = min(max(2*k.pause, time.Millisecond), 250*time.Millisecond)
		return k.pause
	}
	k.pause = 0
	return 0
}

// change releases and takes batons, in one statement. It reports which server's connection it was, and
// what was done.
func (k *keeper) change(release, take []driver.Owner) (id int64, done []bool, err error) {
	ctx, cancel := context.WithTimeout(k.Ctx, k.timeout)
	defer cancel()
	answers := make([]sql.NullInt64, len(release)+len(take))
	to := []any{&id}
	for i := range answers {
		to = append(to, &answers[i])
	}
	if err := k.conn.QueryRowContext(ctx, k.d.words(changeSQL(release, take))).Scan(to...); err != nil {
		return 0, nil, err
	}
	for _, a := range answers {
		done = append(done, a.Int64 == 1)
	}
	return id, done, nil
}

func changeSQL(release, take []driver.Owner) string {
	var b strings.Builder
	b.WriteString("SELECT CONNECTION_ID()")
	for _, o := range release {
		b.WriteString(", RELEASE_LOCK(" + nameOf(o) + ")")
	}
	for _, o := range take {
		b.WriteString(", GET_LOCK(" + nameOf(o) + ", 0)")
	}
	b.WriteString("{all}")
	return b.String()
}

// leave gives the keeper's connection back, without batons.
func (k *keeper) leave() {
	if k.conn == nil {
		return
	}
	var err error
	if len(k.has) > 0 {
		var all []driver.Owner
		for o := range k.has {
			all = append(all, o)
		}
		err = settle(k.Ctx, k.conn, k.d.words(changeSQL(all, nil)))
		clear(k.has)
	}
	closeConn(k.conn, err != nil)
	k.conn, k.id = nil, 0
}
