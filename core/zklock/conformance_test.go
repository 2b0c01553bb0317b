package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/endurance"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/zklock"
)

// requests are what a session sends first for each kind of request.
var requests = map[drivertest.Op]func(zktest.Op) bool{
	drivertest.OpAcquire: zktest.AnyOf(zktest.Create, zktest.Multi),
	drivertest.OpRenew:   zktest.AnyOf(zktest.Set),
	drivertest.OpRelease: zktest.AnyOf(zktest.Delete),
}

// long is a session time-out of which two fifths are longer than the leases of the
// suite, so that their deadlines are those of their TTLs. Test servers grant no longer one.
var long = zklock.WithSessionTimeout(1000 * time.Second)

var roots atomic.Int64

// on returns drivers for servers, with a root of their own.
func on(proxy string, servers ...string) (d, peer driver.Driver, root string) {
	root = fmt.Sprintf("/test/root-%d", roots.Add(1))
	return zklock.New([]string{proxy}, zklock.WithRoot(root), long), zklock.New(servers, zklock.WithRoot(root), long), root
}

// wipe deletes a node and all below it.
func wipe(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	for {
		err := conn.Delete(path, -1)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return
		}
		if !errors.Is(err, zk.ErrNotEmpty) {
			t.Fatalf("delete a node: %v", err)
		}
		children, _, err := conn.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatalf("list a node: %v", err)
		}
		for _, c := range children {
			wipe(t, conn, path+"/"+c)
		}
	}
}

// TestConformance has one server for all checks, and another for each that restarts
// it. To forget everything is to delete the root.
func TestConformance(t *testing.T) {
	drivertest.Run(t, harnesses(t))
}

func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	endurance.Run(t, harnesses(t))
}

// harnesses returns what makes harnesses on one server, or, for what restarts it, on a
// server each.
func harnesses(t *testing.T) func(t *testing.T) *drivertest.Harness {
	shared := zktest.Start(t, warm)
	return func(t *testing.T) *drivertest.Harness {
		server := shared
		if strings.Contains(t.Name(), "Restart") {
			server = zktest.Start(t, warm)
		}
		proxy := zktest.NewProxy(t, server.Addr())
		d, peer, root := on(proxy.Addr(), server.Addr())
		way := &way{}
		if strings.Contains(t.Name(), "StoresRefusal") {
			d = zklock.New([]string{server.Addr()}, zklock.WithRoot(root), long, zklock.WithDialer(way.dial))
		}
		return &drivertest.Harness{
			Driver:       d,
			Peer:         peer,
			Stall:        proxy.Stall,
			Refuse:       way.close,
			DropReply:    func(op drivertest.Op) func() bool { return proxy.DropReply(requests[op]) },
			DelayReplies: proxy.DelayReplies,
			LosePushes:   proxy.LosePushes,
			Restart:      server.Restart,
			Wipe:         func() { wipe(t, raw(t, server), root) },
		}
	}
}

// way is a way to servers that can be closed.
type way struct {
	mu     sync.Mutex
	closed error
	conns  []net.Conn
}

func (w *way) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed != nil {
		return nil, w.closed
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.conns = append(w.conns, c)
	return onWay{c, w}, nil
}

// onWay is a connection that says why it broke.
type onWay struct {
	net.Conn
	way *way
}

func (c onWay) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.way.because(err)
}

func (c onWay) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.way.because(err)
}

func (w *way) because(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.closed != nil {
		return w.closed
	}
	return err
}

// close has no server be reached, until restore is called.
func (w *way) close() (cause string, restore func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = errors.New("no route to host")
	for _, c := range w.conns {
		_ = c.Close()
	}
	return w.closed.Error(), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = nil
	}
}

// TestConformanceOfAnEnsemble has three servers, and a connection to any of them.
func TestConformanceOfAnEnsemble(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite on one server is enough with -short")
	}
	var addrs []string
	for _, s := range zktest.StartEnsemble(t, 3, warm) {
		addrs = append(addrs, s.Addr())
	}
	drivertest.Run(t, func(t *testing.T) *drivertest.Harness {
		_, d, _ := on("", addrs...)
		return &drivertest.Harness{Driver: d}
	})
}
