package redislock_test

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// engine is a core.Engine with a client of its own, as one process has it.
type engine struct {
	*core.Engine
	queued chan driver.ID // what the store has put into its queue
}

// outage is for engines whose servers die or fall silent: how soon they try again.
const outage = 5 * time.Second

// newEngine returns an engine on the client, which it closes too.
func newEngine(t testing.TB, client redis.UniversalClient, options ...core.Option) *engine {
	t.Helper()
	return newEngineOn(t, client, redislock.New(client), options...)
}

func newEngineOn(t testing.TB, client redis.UniversalClient, locks driver.Driver, options ...core.Option) *engine {
	t.Helper()
	e := &engine{queued: make(chan driver.ID, 1024)}
	options = append([]core.Option{core.WithNamespace("test"), core.WithStoreTimeout(attempt)}, options...)
	own, err := core.New(watchedDriver{locks, e.queued}, options...)
	if err != nil {
		t.Fatal(err)
	}
	e.Engine = own
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
		if err := client.Close(); err != nil && !errors.Is(err, net.ErrClosed) { // a failover closes connections, too
			t.Errorf("close the client: %v", err)
		}
	})
	return e
}

// engineOfAChild returns the engine of another process than the test's.
func engineOfAChild(addr string) (*core.Engine, error) {
	return core.New(redislock.New(redis.NewClient(&redis.Options{Addr: addr})), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithStoreTimeout(attempt))
}

// watchedDriver tells when the store has put an Acquire into its queue.
type watchedDriver struct {
	driver.Driver
	queued chan driver.ID
}

func (d watchedDriver) Open(c driver.Config) (driver.Session, error) {
	c.Sink = watchedSink{c.Sink, d.queued}
	return d.Driver.Open(c)
}

type watchedSink struct {
	driver.Sink
	queued chan driver.ID
}

func (s watchedSink) TakenBy(id driver.ID, holder driver.Origin) {
	driver.TakenBy(s.Sink, id, holder)
}

func (s watchedSink) Waiting(id driver.ID) {
	s.Sink.Waiting(id)
	note(s.queued, id)
}

// take acquires a key, also if that needs the end of an outage.
func (e *engine) take(t testing.TB, key string, ttl time.Duration) *core.Lease {
	t.Helper()
	ctx := bounded(t)
	for {
		lease, err := e.Acquire(ctx, core.Policy{Key: key, TTL: ttl, Wait: core.Forever})
		if errors.Is(err, core.ErrUnavailable) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Errorf("acquire %s: %v", key, err)
			return nil
		}
		return lease
	}
}

// queue is take in the background; it returns when the store has queued it.
func (e *engine) queue(t testing.TB, key string, ttl time.Duration) <-chan *core.Lease {
	t.Helper()
	for len(e.queued) > 0 {
		<-e.queued // of an acquisition that has its grant
	}
	got := make(chan *core.Lease, 1)
	go func() { got <- e.take(t, key, ttl) }()
	limit := bounded(t)
	for {
		select {
		case id := <-e.queued:
			if id.Key == "test/"+key {
				return got
			}
		case <-limit.Done():
			t.Fatalf("nobody queues for %s", key)
		}
	}
}

// giveBack releases a lease that is held, also if that needs the end of an outage.
func giveBack(t testing.TB, l *core.Lease) {
	t.Helper()
	if err := l.Release(bounded(t)); err != nil {
		t.Errorf("release %s: %v", l.Key(), err)
	}
}

// answered asks the store whether a lease is held until it says.
func answered(t testing.TB, l *core.Lease) error {
	t.Helper()
	ctx := bounded(t)
	for {
		if err := l.Check(ctx); !errors.Is(err, core.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

// handOver passes a key to and fro until pushes have woken the waiter seven times. Only a
// push can before its first refresh. One that came later was missed, unless the machine was
// slow meanwhile. Each of the two processes may miss two in a row, after which it renews its
// subscription.
func handOver(t testing.TB, a, b *engine, key string) {
	t.Helper()
	const refresh = protocol.MaxPlaceTTL / 4
	lease := a.take(t, key, lasting)
	limit := bounded(t)
	for woken, missed := 0, 0; lease != nil && woken < 7; {
		machine, began := hiccups.Measure(t), time.Now()
		got := b.queue(t, key, lasting)
		giveBack(t, lease)
		lease = <-got
		took := time.Since(began)
		machine.Stop()
		switch {
		case took < refresh:
			woken++
		case took > machine.Allow(refresh/2):
			missed++
		}
		if missed > 4 || limit.Err() != nil {
			t.Errorf("pushes woke the waiter %d times, %d times none did", woken, missed)
			break
		}
		a, b = b, a
	}
	if lease != nil {
		giveBack(t, lease)
	}
}

// keepsAllThrough fails the test unless a holder and a waiter keep what they have through
// a failover that loses nothing, and pushes work before and after.
func keepsAllThrough(t *testing.T, a, b *engine, key string, failOver func()) {
	t.Helper()
	handOver(t, a, b, key)
	lease := a.take(t, key, lasting)
	next := b.queue(t, key, lasting)
	failOver()
	if err := answered(t, lease); err != nil {
		t.Errorf("the holder after the failover: %v", err)
	}
	select {
	case l := <-next:
		t.Errorf("the waiter was granted token %d while the holder has %d", l.Token(), lease.Token())
	default:
	}
	giveBack(t, lease)
	second := <-next
	if second == nil {
		return
	}
	if second.Token() <= lease.Token() {
		t.Errorf("token %d after %d", second.Token(), lease.Token())
	}
	giveBack(t, second)
	handOver(t, a, b, key)
}

// lostInTime fails the test unless the lease was lost, and its holder told so no later
// after its deadline than this.
func lostInTime(t *testing.T, machine *hiccups.Meter, l *core.Lease, told time.Time, most time.Duration) {
	t.Helper()
	if late := told.Sub(l.Deadline()); late > machine.Allow(most) || !errors.Is(l.Err(), core.ErrLost) {
		t.Errorf("the holder of %s was told %v, %v after its deadline", l.Key(), l.Err(), late)
	}
}

// whenTold says when the lease ends for its holder.
func whenTold(l *core.Lease) <-chan time.Time {
	told := make(chan time.Time, 1)
	go func() {
		<-l.Done()
		told <- time.Now()
	}()
	return told
}
