package sqllock_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/sqllock"
)

// mariaDB returns a new database of MariaDB.
func mariaDB(t *testing.T) *database {
	t.Helper()
	t.Parallel()
	p := products[1]
	return p.database(t, p.server.Shared(t))
}

// asker is a process whose statements are counted.
type asker struct {
	*process
	db    *sql.DB
	polls atomic.Int64
	asks  atomic.Int64 // of a waiter that was woken
}

func (d *database) asker(t testing.TB, opts ...sqllock.Option) *asker {
	t.Helper()
	connector, err := d.Driver().(sqldriver.DriverContext).OpenConnector(d.SourceAt(d.On.Addr()) + d.options)
	if err != nil {
		t.Fatal(err)
	}
	a := new(asker)
	a.db = sql.OpenDB(seenConnector{connector, func(statement string) {
		switch {
		case strings.HasPrefix(statement, `SELECT c.lock_key, c.owner, c.state`):
			a.polls.Add(1)
		case strings.HasPrefix(statement, `UPDATE lockaround_claim c SET expires_us`):
			a.asks.Add(1)
		}
	}})
	t.Cleanup(func() {
		if err := a.db.Close(); err != nil {
			t.Error(err)
		}
	})
	a.db.SetMaxIdleConns(8)
	a.process = open(t, d.locks(t, a.db, opts...))
	return a
}

// granted is what becomes of a request.
type granted struct {
	driver.Grant
	err   error
	polls int64 // of its process, until then
}

// wait requests a key, and returns when it has its place in the queue.
func (a *asker) wait(t testing.TB, r driver.Request) <-chan granted {
	t.Helper()
	out := make(chan granted, 1)
	go func() {
		var g granted
		g.Grant, g.err = a.Acquire(context.WithoutCancel(t.Context()), r)
		g.polls = a.polls.Load()
		out <- g
	}()
	select {
	case <-a.queued:
	case g := <-out:
		t.Fatalf("a request did not wait: %v", g.err)
	}
	return out
}

func (a *asker) release(t testing.TB, g driver.Grant) {
	t.Helper()
	if err := a.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
		t.Fatal(err)
	}
}

// keeper returns the connection that has the named lock of a claim, or 0.
func (d *database) keeper(t testing.TB, of driver.ID) (connection int64) {
	t.Helper()
	hash := sha256.Sum256(of.Owner[:])
	var id sql.NullInt64
	if err := d.QueryRowContext(t.Context(), fmt.Sprintf(`SELECT IS_USED_LOCK('la:%x')`, hash[:8])).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id.Int64
}

// free returns a condition that a claim has no named lock.
func (d *database) free(t testing.TB, of driver.ID) func() bool {
	return func() bool { return d.keeper(t, of) == 0 }
}

// awaitKeeper waits until a claim has its named lock, on another connection than one, which it returns. Until
// then a waiter has it for moments.
func (d *database) awaitKeeper(t testing.TB, of driver.ID, other int64) (connection int64) {
	t.Helper()
	eventually(t, "the named lock of a claim", func() bool {
		last := connection
		connection = d.keeper(t, of)
		return connection != 0 && connection != other && connection == last
	})
	return connection
}

// TestHandOverOnMariaDBNeedsNoPoll has two processes hand a key over to each other. Now and then one may
// poll, as time passes.
func TestHandOverOnMariaDBNeedsNoPoll(t *testing.T) {
	d := mariaDB(t)
	a, b := d.asker(t), d.asker(t)
	held, err := a.Acquire(t.Context(), request("k", true))
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	unpolled := 0
	for range rounds {
		next := b.wait(t, request("k", true))
		d.awaitKeeper(t, held.ID, 0)
		before := b.polls.Load()
		a.release(t, held)
		g := <-next
		if g.err != nil {
			t.Fatal(g.err)
		}
		if g.polls == before {
			unpolled++
		}
		held, a, b = g.Grant, b, a
	}
	a.release(t, held)
	if unpolled < rounds/2 {
		t.Errorf("%d of %d waiters had the key without a poll", unpolled, rounds)
	}
}

// TestWaitersOnMariaDBWhoAreGrantedTheirLeasesAtOnceNeedNoPoll has two wait for a shared lease, the second of
// them behind the first.
func TestWaitersOnMariaDBWhoAreGrantedTheirLeasesAtOnceNeedNoPoll(t *testing.T) {
	d := mariaDB(t)
	a, b, c := d.asker(t), d.asker(t), d.asker(t)
	const rounds = 10
	unpolled := 0
	for range rounds {
		held, err := a.Acquire(t.Context(), request("k", true))
		if err != nil {
			t.Fatal(err)
		}
		r, last := request("k", true), request("k", true)
		r.Mode, last.Mode = driver.Shared, driver.Shared
		first := b.wait(t, r)
		d.awaitKeeper(t, held.ID, 0)
		d.awaitKeeper(t, r.ID, 0)
		second := c.wait(t, last)
		before := c.polls.Load()
		a.release(t, held)
		g, h := <-first, <-second
		if g.err != nil || h.err != nil {
			t.Fatal(g.err, h.err)
		}
		if h.polls == before {
			unpolled++
		}
		b.release(t, g.Grant)
		c.release(t, h.Grant)
	}
	if unpolled < rounds/2 {
		t.Errorf("%d of %d waiters had the key without a poll", unpolled, rounds)
	}
}

// TestEachWaiterOnMariaDBIsWokenOnceAndInTurn has many processes wait for a key.
func TestEachWaiterOnMariaDBIsWokenOnceAndInTurn(t *testing.T) {
	d := mariaDB(t)
	const waiters = 16 // with three connections each, of the 150 that the server has
	holder := d.asker(t)
	held, err := holder.Acquire(t.Context(), request("k", true))
	if err != nil {
		t.Fatal(err)
	}
	var all []*asker
	var next []<-chan granted
	for before := held.ID; len(all) < waiters; {
		a, r := d.asker(t), request("k", true)
		all, next = append(all, a), append(next, a.wait(t, r))
		d.awaitKeeper(t, before, 0)
		before = r.ID
	}
	asks := func() (n int64) {
		for _, a := range all {
			n += a.asks.Load()
		}
		return n
	}
	before := asks() // the first ones may have found no named lock
	for i, a := range append([]*asker{holder}, all...) {
		a.release(t, held)
		if i == waiters {
			break
		}
		g := <-next[i]
		if g.err != nil || g.Token <= held.Token {
			t.Fatalf("waiter %d has token %d after %d, %v", i, g.Token, held.Token, g.err)
		}
		held = g.Grant
	}
	if n := asks() - before; n > waiters+waiters/4 { // a few may have been woken by a poll as well
		t.Errorf("%d waiters asked %d times", waiters, n)
	}
}

// TestWaiterOnMariaDBIsServedWithoutTheNamedLockBeforeIt kills the connection that has it, and has a holder
// whose pool is too small for one.
func TestWaiterOnMariaDBIsServedWithoutTheNamedLockBeforeIt(t *testing.T) {
	d := mariaDB(t)
	a, b := d.asker(t), d.asker(t)
	held, err := a.Acquire(t.Context(), request("k", true))
	if err != nil {
		t.Fatal(err)
	}
	r := request("k", true)
	next := b.wait(t, r)
	killed := d.awaitKeeper(t, held.ID, 0)
	d.Must(t, fmt.Sprintf(d.kill, killed))
	d.Must(t, fmt.Sprintf(d.kill, d.awaitKeeper(t, held.ID, killed)))
	a.release(t, held)
	g := <-next
	if g.err != nil {
		t.Fatal(g.err)
	}
	b.release(t, g.Grant)

	a.db.SetMaxOpenConns(4)
	if held, err = a.Acquire(t.Context(), request("other", true)); err != nil {
		t.Fatal(err)
	}
	next = b.wait(t, request("other", true))
	a.release(t, held)
	if g = <-next; g.err != nil {
		t.Fatal(g.err)
	}
	b.release(t, g.Grant)
}

// TestWaitersOnMariaDBLeaveThePoolToOthers has more waiters than the pool has connections.
func TestWaitersOnMariaDBLeaveThePoolToOthers(t *testing.T) {
	d := mariaDB(t)
	const most = 8
	a, b := d.asker(t), d.asker(t)
	b.db.SetMaxOpenConns(most)
	var held []driver.Grant
	var next []<-chan granted
	for i := range 2 * most {
		key := fmt.Sprint("key ", i)
		g, err := a.Acquire(t.Context(), request(key, true))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, g)
		next = append(next, b.wait(t, request(key, true)))
	}
	eventually(t, "a waiter that sleeps", func() bool { return b.db.Stats().InUse >= 2 })
	var used []*sql.Conn
	for range most {
		conn, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, conn)
	}
	for _, conn := range used {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, g := range held {
		a.release(t, g)
		n := <-next[i]
		if n.err != nil {
			t.Fatal(n.err)
		}
		b.release(t, n.Grant)
	}
}

// TestClosedSessionOnMariaDBLeavesNoNamedLock closes one that waits, and one that holds.
func TestClosedSessionOnMariaDBLeavesNoNamedLock(t *testing.T) {
	d := mariaDB(t)
	a, b := d.asker(t), d.asker(t)
	held, err := a.Acquire(t.Context(), request("k", true))
	if err != nil {
		t.Fatal(err)
	}
	r := request("k", true)
	next := b.wait(t, r)
	d.awaitKeeper(t, r.ID, 0)
	d.awaitKeeper(t, held.ID, 0)
	for _, p := range []*asker{b, a} {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if g := <-next; g.err != driver.ErrClosed {
		t.Errorf("a waiter whose session was closed: %v; want %v", g.err, driver.ErrClosed)
	}
	eventually(t, "the end of the waiter's named lock", d.free(t, r.ID))
	eventually(t, "the end of the holder's named lock", d.free(t, held.ID))
	for _, p := range []*asker{a, b} {
		if n := p.db.Stats().InUse; n != 0 {
			t.Errorf("a session that was closed uses %d connections", n)
		}
	}
}

// pooler makes connections that have two of the server each, and use one for a statement with named locks of
// their own, and the other for the next.
type pooler struct {
	sqldriver.Connector
	named *atomic.Int64 // how many of these statements there were
}

func (c pooler) Connect(ctx context.Context) (sqldriver.Conn, error) {
	first, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	second, err := c.Connector.Connect(ctx)
	if err != nil {
		_ = first.Close()
		return nil, err
	}
	return &pooledConn{first.(mysqlConn), second.(mysqlConn), c.named}, nil
}

type pooledConn struct {
	mysqlConn
	other mysqlConn
	named *atomic.Int64
}

func (c *pooledConn) Close() error { return errors.Join(c.mysqlConn.Close(), c.other.Close()) }

func (c *pooledConn) QueryContext(ctx context.Context, statement string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if strings.Contains(statement, "CONNECTION_ID()") {
		c.mysqlConn, c.other = c.other, c.mysqlConn
		c.named.Add(1)
	}
	return c.mysqlConn.QueryContext(ctx, statement, args)
}

// TestSessionOnMariaDBBehindAPoolerDoesWithoutNamedLocks has it find out by the end of its first place.
func TestSessionOnMariaDBBehindAPoolerDoesWithoutNamedLocks(t *testing.T) {
	d := mariaDB(t)
	connector, err := d.Driver().(sqldriver.DriverContext).OpenConnector(d.SourceAt(d.On.Addr()) + d.options)
	if err != nil {
		t.Fatal(err)
	}
	var named atomic.Int64
	db := sql.OpenDB(pooler{connector, &named})
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	a, b := d.asker(t), &asker{process: open(t, d.locks(t, db))}
	var before int64
	for round := range 3 {
		held, err := a.Acquire(t.Context(), request("k", true))
		if err != nil {
			t.Fatal(err)
		}
		r := request("k", true)
		next := b.wait(t, r)
		if round == 0 {
			d.awaitKeeper(t, r.ID, 0)
		}
		a.release(t, held)
		g := <-next
		if g.err != nil {
			t.Fatal(g.err)
		}
		b.release(t, g.Grant)
		switch round {
		case 0:
			eventually(t, "the release that a pooler sends elsewhere", func() bool { return named.Load() == 2 })
		case 1:
			before = named.Load()
		}
	}
	if n := named.Load(); n != before || n > 3 {
		t.Errorf("%d statements with named locks, after %d in the first rounds", n, before)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
