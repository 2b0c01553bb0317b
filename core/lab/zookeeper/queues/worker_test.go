package queues_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/zklock"
	"github.com/lockaround/lockaround/decorator/queue/zkqueue"
	"github.com/lockaround/lockaround/decorator/serial"
	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// The roles of child processes: one writes down what it runs, the other leaves effects in ZooKeeper.
const (
	historyRole = "history"
	effectsRole = "effects"
)

var roles = child.Roles{historyRole: writeHistory, effectsRole: leaveEffects}

// process is what a process has whose locks and queues are in one ZooKeeper.
type process struct {
	conn   *zk.Conn
	events <-chan zk.Event
	locks  *core.Engine
	store  *zkqueue.Store
}

func openProcess(addr string) (p process, err error) {
	if p.locks, err = core.New(zklock.New([]string{addr}), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		return p, err
	}
	if p.conn, p.events, err = connect(addr, sessionTimeout); err != nil {
		return p, err
	}
	p.store, err = zkqueue.New(p.conn, root)
	return p, err
}

// own is the test's own process.
func own(t testing.TB, addr string) process {
	t.Helper()
	p, err := openProcess(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.locks.Close()
		p.conn.Close()
		for range p.events { // until the client's goroutines have ended
		}
	})
	return p
}

// start starts a child that works.
func start(t testing.TB, role string, p serialtest.Plan) *child.Process {
	t.Helper()
	w, err := child.Start(t, role, p)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func writeHistory(told string) error {
	var plan serialtest.Plan
	if err := json.Unmarshal([]byte(told), &plan); err != nil {
		return err
	}
	p, err := openProcess(plan.Store)
	if err != nil {
		return err
	}
	return serialtest.Work(context.Background(), plan, p.locks, p.store)
}

// effects is the node below which an item leaves its effect: a node with the attempt that has made it.
const effects = "/shop/effects"

func leaveEffects(told string) error {
	var plan serialtest.Plan
	if err := json.Unmarshal([]byte(told), &plan); err != nil {
		return err
	}
	p, err := openProcess(plan.Store)
	if err != nil {
		return err
	}
	f, err := plan.Function(p.locks, p.store, func(ctx context.Context, i serialtest.Item) error {
		info, _ := serial.RunFrom(ctx)
		_, err := p.conn.Create(path.Join(effects, i.OrderID+"-"+i.ID), fmt.Append(nil, info.Attempt), 0, zk.WorldACL(zk.PermAll))
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return f.Work(context.Background())
}
