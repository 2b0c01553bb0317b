package zkqueue_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/zkqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// nowhere is a connection to no server.
func nowhere(t *testing.T) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{"127.0.0.1:1"}, time.Second, zk.WithLogger(quiet{}),
		zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, errors.New("there is no server") }))
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

func TestWhatCannotWorkIsRefusedAtOnce(t *testing.T) {
	conn := nowhere(t)
	for _, tt := range []struct {
		what string
		conn *zk.Conn
		root string
		opt  zkqueue.Option
		want string
	}{
		{"no connection", nil, "/q", nil, "zk.Connect"},
		{"no root", conn, "", nil, "/shop/queues"},
		{"a relative root", conn, "q", nil, "/shop/queues"},
		{"the root of all", conn, "/", nil, "/shop/queues"},
		{"a root that ends with a slash", conn, "/q/", nil, "/shop/queues"},
		{"a root with dots", conn, "/q/../r", nil, "/shop/queues"},
		{"ZooKeeper's own", conn, "/zookeeper/q", nil, "/shop/queues"},
		{"a root that ZooKeeper cannot name", conn, "/q\x00", nil, "/shop/queues"},
		{"a long root", conn, "/" + strings.Repeat("q", 256), nil, "256"},
		{"no shards", conn, "/q", zkqueue.WithShards(0), "1 to 64"},
		{"many shards", conn, "/q", zkqueue.WithShards(65), "1 to 64"},
		{"a small buffer", conn, "/q", zkqueue.WithMaxBuffer(1 << 10), "jute.maxbuffer"},
		{"a huge buffer", conn, "/q", zkqueue.WithMaxBuffer(1 << 30), "jute.maxbuffer"},
		{"no permissions", conn, "/q", zkqueue.WithACL(), "1 to 16"},
		{"many permissions", conn, "/q", zkqueue.WithACL(make([]zk.ACL, 17)...), "1 to 16"},
	} {
		s, err := zkqueue.New(tt.conn, tt.root, tt.opt)
		if err == nil || s != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v; want an error with %q", tt.what, s, err, tt.want)
		}
	}
}

var rules = queue.Rules{Attempts: 1, MaxLength: 1, KeepFor: time.Hour, KeepCount: 1}

func TestItemThatServersWouldNotTakeIsRefusedBeforeItIsSent(t *testing.T) {
	for _, tt := range []struct{ buffer, most int }{
		{0, 1<<20 - 1 - 32<<10},
		{64 << 10, 32 << 10},
		{4 << 20, 4<<20 - 32<<10},
		{64 << 20, queue.MaxPayload},
	} {
		var opts []zkqueue.Option
		if tt.buffer > 0 {
			opts = append(opts, zkqueue.WithMaxBuffer(tt.buffer))
		}
		s, err := zkqueue.New(nowhere(t), "/q", opts...)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.MaxPayload(); got != tt.most {
			t.Errorf("with jute.maxbuffer %d a payload may have %d bytes; want %d", tt.buffer, got, tt.most)
		}
		q, err := s.Open("refund", rules)
		if err != nil {
			t.Fatal(err)
		}
		_, err = q.Append(t.Context(), "key", queue.New{ID: "1", Payload: make([]byte, tt.most+1)})
		if err == nil || tt.most < queue.MaxPayload && (!errors.Is(err, queue.ErrItem) || !strings.Contains(err.Error(), "WithMaxBuffer")) {
			t.Errorf("an item of %d bytes: %v; want queue.ErrItem, and what to do", tt.most+1, err)
		}
	}
}

func TestQueueHasANameThatANodeCanHave(t *testing.T) {
	s, err := zkqueue.New(nowhere(t), "/q", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", strings.Repeat("n", 257)} {
		if _, err := s.Open(bad, rules); err == nil {
			t.Errorf("the name of %d bytes is accepted", len(bad))
		}
	}
	q, err := s.Open(strings.Repeat("\x00", 256), rules)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Append(t.Context(), "key", queue.New{ID: "1"}); err == nil || errors.Is(err, queue.ErrItem) {
		t.Errorf("append without a server: %v", err)
	}
	if _, err := q.Claim(t.Context(), queue.ClaimRequest{Shard: 1}); err == nil || !strings.Contains(err.Error(), "shard 1 of 1") {
		t.Errorf("a claim in shard 1 of 1: %v", err)
	}
}
