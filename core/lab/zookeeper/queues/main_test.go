// Package queues_test tests package zkqueue on real servers.
package queues_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/zkqueue"
	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

func TestMain(m *testing.M) {
	child.Main(roles)
	goleak.VerifyTestMain(m)
}

const (
	root = "/shop/queues"

	// sessionTimeout is longer than a busy machine lets a server be silent.
	sessionTimeout = 30 * time.Second
)

var eventually = testkit.Until

// plainRules are those of a queue of which a test says no more.
var plainRules = queue.Rules{Attempts: 100, MaxLength: 1 << 20, KeepFor: time.Hour, KeepCount: 1000}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// dial connects to a server for a test.
func dial(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	return dialFor(t, addr, sessionTimeout)
}

func dialFor(t testing.TB, addr string, timeout time.Duration) *zk.Conn {
	t.Helper()
	conn, events, err := connect(addr, timeout)
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

func connect(addr string, timeout time.Duration) (*zk.Conn, <-chan zk.Event, error) {
	return zk.Connect([]string{addr}, timeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false),
		zk.WithDialer(zkqueue.Dial))
}

func newStore(t testing.TB, conn *zk.Conn, opts ...zkqueue.Option) *zkqueue.Store {
	t.Helper()
	s, err := zkqueue.New(conn, root, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t testing.TB, s *zkqueue.Store, name string, r queue.Rules) queue.Queue {
	t.Helper()
	q, err := s.Open(name, r)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// nothing is the function of a process that only appends.
func nothing(context.Context, serialtest.Item) error { return nil }
