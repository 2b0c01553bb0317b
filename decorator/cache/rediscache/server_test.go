package rediscache_test

import (
	"cmp"
	"context"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// server is a server with clients.
type server struct {
	*testservers.Server
	t testing.TB
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	return &server{testservers.Redis(t, args...), t}
}

// client returns a client of the server, closed with the test.
func (s *server) client(o redis.Options) *redis.Client {
	s.t.Helper()
	o.Addr = s.Addr()
	// A server that is slow since the machine is busy is not out of reach.
	o.ReadTimeout, o.DialTimeout = patience, cmp.Or(o.DialTimeout, patience)
	c := redis.NewClient(&o)
	s.t.Cleanup(func() { closeClient(s.t, c) })
	return c
}

func closeClient(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// until asks every few milliseconds whether something holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func newStore(t testing.TB, c redis.UniversalClient) *rediscache.Store {
	t.Helper()
	s, err := rediscache.New(c, "shop:cache:")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
