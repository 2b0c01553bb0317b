package redislock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) {
	child.Main(child.Roles{suites.Holder: crashing.Hold, waitersRole: waitInTurn, calledRole: beCalled, leaverRole: leave})
	goleak.VerifyTestMain(redistest.Settling{M: m})
}

const (
	// hang ends a test that would hang. It is no promise.
	hang = 2 * time.Minute
	// attempt is how long a server may take to answer that is not kept from it: longer
	// than one does on a machine that is busy.
	attempt = 30 * time.Second
	// lasting is the TTL of a lease that does not end by itself while a test runs.
	lasting = time.Hour
)

// sink records what a session reports.
type sink struct {
	waiting   chan driver.ID
	contended chan driver.ID
	lost      chan driver.ID
}

func newSink() *sink {
	return &sink{make(chan driver.ID, 1024), make(chan driver.ID, 1024), make(chan driver.ID, 1024)}
}

func note(c chan driver.ID, id driver.ID) {
	select {
	case c <- id:
	default:
	}
}

func (s *sink) Waiting(id driver.ID)           { note(s.waiting, id) }
func (s *sink) Contended(id driver.ID, _ bool) { note(s.contended, id) }
func (s *sink) Lost(id driver.ID, _ error)     { note(s.lost, id) }

// process is a session with a client of its own, as another process would have.
type process struct {
	driver.Session
	t      testing.TB
	sink   *sink
	client *redis.Client
}

// join opens a process's session at addr.
func join(t testing.TB, addr string, change ...func(*redis.Options)) *process {
	t.Helper()
	return joinWithin(t, addr, attempt, change...)
}

func joinWithin(t testing.TB, addr string, timeout time.Duration, change ...func(*redis.Options)) *process {
	t.Helper()
	o := &redis.Options{Addr: addr, DialTimeout: timeout, ReadTimeout: timeout}
	for _, c := range change {
		c(o)
	}
	return joinBy(t, redis.NewClient(o), timeout)
}

func joinBy(t testing.TB, client *redis.Client, timeout time.Duration, opts ...redislock.Option) *process {
	t.Helper()
	p := &process{t: t, sink: newSink(), client: client}
	s, err := redislock.New(p.client, opts...).Open(driver.Config{Sink: p.sink, StoreTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	p.Session = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close the session: %v", err)
		}
		if err := p.client.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return p
}

func newID(key string) driver.ID {
	id := driver.ID{Key: key}
	_, _ = rand.Read(id.Owner[:])
	return id
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// bounded is a context for what ends by itself, unless something hangs.
func bounded(t testing.TB) context.Context {
	t.Helper()
	return within(t, hang)
}

func (p *process) try(key string, ttl time.Duration) (driver.Grant, error) {
	return p.Acquire(bounded(p.t), driver.Request{ID: newID(key), TTL: ttl})
}

func (p *process) take(key string, ttl time.Duration) driver.Grant {
	p.t.Helper()
	g, err := p.try(key, ttl)
	if err != nil {
		p.t.Fatalf("acquire: %v", err)
	}
	return g
}

// outcome is how an Acquire in the background ended.
type outcome struct {
	driver.Grant
	err error
	at  time.Time
}

// insist is Acquire by one who asks anew if his place was lost, as an engine does: this
// machine may stand still for longer than a place lasts.
func (p *process) insist(ctx context.Context, r driver.Request) (driver.Grant, error) {
	for {
		g, err := p.Acquire(ctx, r)
		if !errors.Is(err, driver.ErrPlaceLost) {
			return g, err
		}
		r.ID, r.Replace = newID(r.Key), nil
	}
}

// queue starts an Acquire that waits and returns when it has its place.
func (p *process) queue(key string, ttl time.Duration) (driver.ID, <-chan outcome) {
	p.t.Helper()
	return p.enqueue(p.insist, key, ttl)
}

func (p *process) enqueue(acquire acquisition, key string, ttl time.Duration) (driver.ID, <-chan outcome) {
	p.t.Helper()
	id, c := p.begin(bounded(p.t), acquire, driver.Request{ID: newID(key), TTL: ttl, Wait: true})
	for {
		select {
		case got := <-p.sink.waiting:
			if got == id {
				return id, c
			}
		case o := <-c:
			p.t.Fatalf("acquire ended before it waited: %v", o.err)
		}
	}
}

func (p *process) start(ctx context.Context, r driver.Request) (driver.ID, <-chan outcome) {
	return p.begin(ctx, p.insist, r)
}

// acquisition is Acquire or insist.
type acquisition func(context.Context, driver.Request) (driver.Grant, error)

func (p *process) begin(ctx context.Context, acquire acquisition, r driver.Request) (driver.ID, <-chan outcome) {
	c := make(chan outcome, 1)
	go func() {
		g, err := acquire(ctx, r)
		c <- outcome{g, err, time.Now()}
	}()
	return r.ID, c
}

func (p *process) release(g driver.Grant) {
	p.t.Helper()
	if err := p.end(g); err != nil {
		p.t.Fatalf("release: %v", err)
	}
}

func (p *process) end(g driver.Grant) error {
	return p.Release(bounded(p.t), []driver.Ending{ending(g)})[0]
}

func ending(g driver.Grant) driver.Ending {
	return driver.Ending{ID: g.ID, Token: g.Token, Deadline: g.Deadline}
}

func await(t testing.TB, c <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-c:
		return o
	case <-time.After(hang):
		t.Fatal("acquire did not end")
		return outcome{}
	}
}

func TestFreeKeyIsGrantedAndReleased(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	g := a.take("k", time.Hour)
	if left := driver.Remaining(g.Deadline, time.Now()); left < 50*time.Minute || left > time.Hour {
		t.Errorf("%v are left of an hour", left)
	}
	held := new(driver.HeldError)
	if _, err := b.try("k", time.Hour); !errors.As(err, &held) || held.RetryAfter < 50*time.Minute {
		t.Errorf("a taken key: %v", err)
	}
	a.release(g)
	if next := b.take("k", time.Hour); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}

func TestWaiterIsWokenByThePush(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	if err := b.Ping(bounded(t)); err != nil {
		t.Fatal(err)
	}
	g := a.take("k", lasting)
	_, c := b.queue("k", lasting)
	a.release(g)
	o := await(t, c)
	if o.err != nil {
		t.Fatal(o.err)
	}
	if o.Token <= g.Token {
		t.Errorf("token %d after %d", o.Token, g.Token)
	}
	b.release(o.Grant)
}

func TestReplacedLeaseIsGrantedToTheNextOwner(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	g := a.take("k", lasting)
	old := ending(g)
	next, err := a.Acquire(bounded(t), driver.Request{ID: newID("k"), TTL: lasting, Wait: true, Replace: &old})
	if err != nil || next.Token <= g.Token {
		t.Fatalf("replace: %v, token %d after %d", err, next.Token, g.Token)
	}
	_, c := b.queue("k", lasting)
	old = ending(next)
	_, mine := a.start(bounded(t), driver.Request{ID: newID("k"), TTL: lasting, Wait: true, Replace: &old})
	theirs := await(t, c)
	if theirs.err != nil {
		t.Fatal(theirs.err)
	}
	b.release(theirs.Grant)
	o := await(t, mine)
	if o.err != nil || o.Token <= theirs.Token {
		t.Fatalf("after the other's turn: %v, token %d after %d", o.err, o.Token, theirs.Token)
	}
	a.release(o.Grant)
}

func (p *process) renew(g driver.Grant, ttl time.Duration) driver.Renewed {
	return p.Renew(bounded(p.t), []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: ttl}})[0]
}

func TestRenewalExtendsAndNeverRevives(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	g := a.take("k", 10*time.Minute)
	r := a.renew(g, time.Hour)
	if r.Err != nil || driver.Remaining(r.Deadline, time.Now()) < 50*time.Minute {
		t.Fatalf("renewal: %v, deadline %v", r.Err, r.Deadline)
	}
	a.release(g)
	if r := a.renew(g, lasting); !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("renewal after release: %v", r.Err)
	}
	if st, err := a.Inspect(bounded(t), "k"); err != nil || st.Held {
		t.Errorf("after a late renewal: held %v, %v", st.Held, err)
	}
}

func TestPermanentErrorsSayWhatIsWrong(t *testing.T) {
	if _, err := redislock.New(nil).Open(driver.Config{Sink: newSink(), StoreTimeout: time.Second}); err == nil {
		t.Error("a nil client was accepted")
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close() //nolint:errcheck // it never connected
	if _, err := redislock.New(ring).Open(driver.Config{Sink: newSink(), StoreTimeout: time.Second}); err == nil {
		t.Error("a Ring was accepted")
	}
}

// gather runs f n times at once and waits.
func gather(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func TestDriverTellsAnOperatorWhereItsServerIs(t *testing.T) {
	sentinels := &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, Password: "secret"}
	for want, client := range map[string]redis.UniversalClient{
		"10.0.0.5:6379":                redis.NewClient(&redis.Options{Addr: "10.0.0.5:6379", Username: "shop", Password: "secret"}),
		"10.0.0.5:6379, database 3":    redis.NewClient(&redis.Options{Addr: "10.0.0.5:6379", DB: 3}),
		"found by Sentinels":           redislock.NewFailoverClient(sentinels),
		"10.0.0.5:6379, 10.0.0.6:6379": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"10.0.0.5:6379", "10.0.0.6:6379"}, Password: "secret"}),
		"":                             nil,
	} {
		if got := redislock.New(client).Capabilities().Address; got != want {
			t.Errorf("address is %q, want %q", got, want)
		}
		if client != nil {
			_ = client.Close() // it has not been used
		}
	}
}
