package redisqueue_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// client returns a client of the server, closed with the test.
func client(t testing.TB, s *testservers.Server, o redis.Options) *redis.Client {
	t.Helper()
	o.Addr = s.Addr()
	// A server that is slow since the machine is busy is not out of reach.
	o.ReadTimeout, o.DialTimeout = patience, cmp.Or(o.DialTimeout, patience)
	c := redis.NewClient(&o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newStore(t testing.TB, c redis.UniversalClient, o ...redisqueue.Option) *redisqueue.Store {
	t.Helper()
	s, err := redisqueue.New(c, "shop:queue:", o...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
