package rediscache_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/redisnet"
)

// listening is a subscription in a goroutine that ends with the test.
type listening struct {
	t     *testing.T
	up    chan struct{}
	keys  chan string
	ended chan error
	stop  context.CancelFunc
}

// listen returns when the subscription works.
func listen(t *testing.T, s *rediscache.Store) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listening{t: t, up: make(chan struct{}, 10), keys: make(chan string, 100), ended: make(chan error, 1), stop: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.ended <- s.Listen(ctx, func() { l.up <- struct{}{} }, func(k string) { l.keys <- k })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case <-l.up:
	case err := <-l.ended:
		t.Fatalf("listen: %v", err)
	}
	return l
}

func (l *listening) mustBe(keys ...string) {
	l.t.Helper()
	for _, want := range keys {
		select {
		case got := <-l.keys:
			if got != want {
				l.t.Errorf("heard of %q; want %q", got, want)
			}
		case <-time.After(patience):
			l.t.Fatalf("heard nothing of %q", want)
		}
	}
	select {
	case k := <-l.keys:
		l.t.Errorf("heard of %q, too", k)
	default:
	}
}

func TestChangesAreAnnouncedOnceEach(t *testing.T) {
	rdb := startServer(t).client(redis.Options{})
	s := newStore(t, rdb)
	l := listen(t, s)
	mustPut(t, s, "a{b}\x00", 5, "v", time.Hour)
	_, again := s.Put(t.Context(), "a{b}\x00", 5, []byte("v"), time.Hour)
	_, refused := s.Put(t.Context(), "a{b}\x00", 4, []byte("w"), time.Hour)
	if err := errors.Join(again, refused, s.Invalidate(t.Context(), "c"), s.Invalidate(t.Context(), "")); err != nil {
		t.Fatal(err)
	}
	l.mustBe("a{b}\x00", "c", "")

	other, err := rediscache.New(rdb, "shop:other:")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Invalidate(t.Context(), "of another cache"), s.Invalidate(t.Context(), "d")); err != nil {
		t.Fatal(err)
	}
	l.mustBe("d")
}

func TestListenEndsWithItsContext(t *testing.T) {
	l := listen(t, newStore(t, startServer(t).client(redis.Options{})))
	l.stop()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestListenEndsAtOnceWhenItsConnectionFails(t *testing.T) {
	n := redisnet.New()
	l := listen(t, newStore(t, startServer(t).client(n.By(redis.Options{DialTimeout: 10 * patience}))))
	restore := n.Cut()
	defer restore()
	select {
	case err := <-l.ended:
		if err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want what has failed", err)
		}
	case <-time.After(patience): // a connection that is being made would take longer
		t.Error("nobody has told")
		l.stop()
	}
	if len(l.up) > 0 {
		t.Error("it is up again")
	}
}

func TestSilentSubscriptionEnds(t *testing.T) {
	n := redisnet.New()
	s := newStore(t, startServer(t).client(n.By(redis.Options{})))
	var l *listening
	quiet := func(check time.Duration) (err error) {
		s.Check(check)
		l = listen(t, s)
		select {
		case err = <-l.ended:
		case <-time.After(6 * check):
		}
		return err
	}
	// Pings are answered, so that it lasts, if this process is not stopped for longer than an
	// answer may take.
	for check := 50 * time.Millisecond; ; check *= 2 {
		err := quiet(check)
		if err == nil {
			break
		}
		if check > 10*time.Second {
			t.Fatalf("a quiet subscription has ended: %v", err)
		}
	}
	n.Mute(true)
	defer n.Mute(false)
	if err := <-l.ended; err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v; want that the server does not answer", err)
	}
}

func TestChangesAreHeardAllOverACluster(t *testing.T) {
	addrs := testservers.RedisCluster(t, 2, 0, "--cluster-node-timeout", "120000").Addrs()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer closeClient(t, c)
	s := newStore(t, c)
	for range 4 { // at this or that master
		l := listen(t, s)
		for _, k := range []string{"a", "b", "c", "d"} { // of this and that master
			if err := s.Invalidate(t.Context(), k); err != nil {
				t.Fatal(err)
			}
			for got := ""; got != k; got = <-l.keys { // among late ones of the rounds before
			}
		}
		l.stop()
		if err := <-l.ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestCopiesGoWhenTheSubscriptionBreaks(t *testing.T) {
	srv, n := startServer(t), redisnet.New()
	tiered, h := newTiered(t, srv.client(n.By(redis.Options{})))
	direct := newStore(t, srv.client(redis.Options{}))
	for i := range int64(3) {
		mustPut(t, direct, "k", 2*i+1, "old", time.Hour)
		until(t, "the copy to be used", func() bool {
			before := n.Written()
			e, err := tiered.Get(t.Context(), "k")
			return err == nil && string(e.Value) == "old" && n.Written() == before
		})
		restore := n.Cut()
		until(t, "the copies to be given up", func() bool { return tiered.Err() != nil })
		mustPut(t, direct, "k", 2*i+2, "new", time.Hour) // which it does not hear of
		restore()
		mustRead(t, tiered, "k", "new")
		<-h.up
		mustRead(t, tiered, "k", "new")
		if err := tiered.Err(); err != nil {
			t.Errorf("it is up again, and says %v", err)
		}
	}
}

func TestCopiesAreUsedAgainAfterARestart(t *testing.T) {
	srv := startServer(t)
	tiered, h := newTiered(t, srv.client(redis.Options{}))
	mustPut(t, tiered, "k", 5, "old", time.Hour)
	mustRead(t, tiered, "k", "old")
	srv.Restart()
	<-h.up
	until(t, "the server to be reached", func() bool {
		_, err := tiered.Get(t.Context(), "k")
		return err == nil
	})
	mustRead(t, tiered, "k", "")
	mustPut(t, tiered, "k", 3, "new", time.Hour)
	mustRead(t, tiered, "k", "new")
}
