package zklock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) {
	child.Main(child.Roles{suites.Holder: crashing.Hold})
	goleak.VerifyTestMain(m)
}

// process is a session and what it was told.
type process struct {
	t *testing.T
	driver.Session

	mu        sync.Mutex
	waiting   map[driver.ID]chan struct{}
	contended map[driver.ID]chan struct{}
	lost      map[driver.ID]chan struct{}
}

const (
	// patience ends what is expected to happen, and never does. It is no promise.
	patience = 2 * time.Minute

	// storeTimeout is longer than a busy machine lets a server be silent.
	storeTimeout = 30 * time.Second

	// hold is the TTL of leases that are released.
	hold = 5 * time.Minute
)

// open opens a session on d that is closed with the test.
func open(t *testing.T, d driver.Driver) *process {
	t.Helper()
	return openWith(t, d, storeTimeout)
}

func openWith(t *testing.T, d driver.Driver, timeout time.Duration) *process {
	t.Helper()
	p := &process{
		t: t, waiting: make(map[driver.ID]chan struct{}),
		contended: make(map[driver.ID]chan struct{}), lost: make(map[driver.ID]chan struct{}),
	}
	s, err := d.Open(driver.Config{Sink: p, StoreTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	p.Session = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		_ = s.Close(ctx) // a test may have ended its server
	})
	return p
}

func (p *process) Waiting(id driver.ID) { p.note(p.waiting, id) }

func (p *process) Contended(id driver.ID, _ bool) { p.note(p.contended, id) }

func (p *process) Lost(id driver.ID, _ error) { p.note(p.lost, id) }

func (p *process) note(m map[driver.ID]chan struct{}, id driver.ID) {
	select {
	case p.told(m, id) <- struct{}{}:
	default:
	}
}

// told returns a channel that receives when the session is told so of id.
func (p *process) told(m map[driver.ID]chan struct{}, id driver.ID) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m[id] == nil {
		m[id] = make(chan struct{}, 1)
	}
	return m[id]
}

// await waits for what is expected to happen.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

// eventually waits until something holds.
var eventually = testkit.Until

func request(key string, ttl time.Duration) driver.Request {
	r := driver.Request{ID: driver.ID{Key: key}, TTL: ttl}
	_, _ = rand.Read(r.Owner[:]) // never fails
	return r
}

// take acquires a key that must be free.
func (p *process) take(key string, ttl time.Duration) driver.Grant {
	p.t.Helper()
	g, err := p.Acquire(p.t.Context(), request(key, ttl))
	if err != nil {
		p.t.Fatalf("acquire of a free key: %v", err)
	}
	return g
}

// leave releases a lease whose session may have expired.
func (p *process) leave(g driver.Grant) {
	p.t.Helper()
	if err := p.Release(p.t.Context(), []driver.Ending{ending(g)})[0]; err != nil && !errors.Is(err, driver.ErrNotHeld) {
		p.t.Fatalf("release: %v", err)
	}
}

// outcome is what an Acquire has returned.
type outcome struct {
	driver.Grant
	err error
	at  time.Time
}

// ask calls Acquire in the background.
func (p *process) ask(r driver.Request) <-chan outcome {
	done := make(chan outcome, 1)
	ctx := p.t.Context()
	go func() {
		g, err := p.Acquire(ctx, r)
		done <- outcome{g, err, time.Now()}
	}()
	return done
}

// obtain acquires a key, and asks anew when its session expires meanwhile.
func (p *process) obtain(key string, ttl time.Duration) (g driver.Grant) {
	p.t.Helper()
	eventually(p.t, "an acquisition", func() bool {
		r := request(key, ttl)
		r.Wait = true
		var err error
		g, err = p.Acquire(p.t.Context(), r)
		return err == nil
	})
	return g
}

// enqueue waits for a key that is taken. It returns when it has its place, or, with waits
// being false, when it has no reason to wait.
func (p *process) enqueue(key string, ttl time.Duration) (done <-chan outcome, waits bool) {
	p.t.Helper()
	return p.enqueueAs(request(key, ttl))
}

func (p *process) enqueueAs(r driver.Request) (done <-chan outcome, waits bool) {
	p.t.Helper()
	r.Wait = true
	done = p.ask(r)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-p.told(p.waiting, r.ID):
		return done, true
	case o := <-done:
		ended := make(chan outcome, 1)
		ended <- o
		return ended, false
	case <-limit.C:
		p.t.Fatalf("a place in the queue: not within %v", patience)
		panic("unreachable")
	}
}

// queue waits for a key that is taken and returns when it has its place.
func (p *process) queue(key string, ttl time.Duration) <-chan outcome {
	p.t.Helper()
	return p.queueAs(request(key, ttl))
}

func (p *process) queueAs(r driver.Request) <-chan outcome {
	p.t.Helper()
	done, waits := p.enqueueAs(r)
	if !waits {
		p.t.Fatalf("a wait for a key that is taken has ended: %v", (<-done).err)
	}
	return done
}

func granted(t *testing.T, what string, c <-chan outcome) driver.Grant {
	t.Helper()
	o := await(t, what, c)
	if o.err != nil {
		t.Fatalf("%s: %v", what, o.err)
	}
	return o.Grant
}

func ending(g driver.Grant) driver.Ending {
	return driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}
}

// drop releases a lease that must be held.
func (p *process) drop(g driver.Grant) {
	p.t.Helper()
	if err := p.Release(p.t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
		p.t.Fatalf("release of a lease that is held: %v", err)
	}
}

func (p *process) state(key string) driver.State {
	p.t.Helper()
	st, err := p.Inspect(p.t.Context(), key)
	if err != nil {
		p.t.Fatalf("inspect: %v", err)
	}
	return st
}

// raw connects to a server without the driver.
func raw(t *testing.T, s *testservers.Server) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{s.Addr()}, 2*storeTimeout, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events { // until the client's goroutines have ended
		}
	})
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
