package redlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// lines are the ways to modelled nodes, with what networks do to them.
type lines struct {
	nodes []*model
	mu    sync.Mutex
	gate  chan struct{} // closed when a stall ends; nil: there is none
	deaf  int
	delay time.Duration
	drops map[int]operation
}

// line is the way to one node. A driver without faults goes by nodes itself.
type line struct {
	*model
	all  *lines
	node int
}

func (l line) run(ctx context.Context, cmds []command) []reply {
	lost := func(err error) []reply {
		rs := make([]reply, len(cmds))
		for i := range rs {
			rs[i].err = err
		}
		return rs
	}
	if err := l.pass(ctx); err != nil {
		return lost(err)
	}
	rs := l.model.run(ctx, cmds)
	l.all.mu.Lock()
	delay := l.all.delay
	drop := l.all.drops[l.node] != "" && l.all.drops[l.node] == cmds[0].op
	if drop {
		delete(l.all.drops, l.node)
	}
	l.all.mu.Unlock()
	if drop {
		rs = l.model.run(ctx, cmds) // sent again by a new connection
		for i := range rs {
			rs[i].sentTwice = true
		}
	}
	if !kit.Sleep(ctx, delay) {
		return lost(ctx.Err())
	}
	if err := l.pass(ctx); err != nil {
		return lost(err)
	}
	return rs
}

// pass waits for the end of a stall.
func (l line) pass(ctx context.Context) error {
	l.all.mu.Lock()
	gate := l.all.gate
	l.all.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l line) scan(ctx context.Context, prefix string, cursor uint64, limit int) ([]string, uint64, error) {
	if err := l.pass(ctx); err != nil {
		return nil, 0, err
	}
	return l.model.scan(ctx, prefix, cursor, limit)
}

func (l line) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	return l.model.listen(ctx, channel, up, func(payload string) {
		l.all.mu.Lock()
		deaf, delay, gate := l.all.deaf, l.all.delay, l.all.gate
		l.all.mu.Unlock()
		if deaf > 0 {
			return
		}
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
		if kit.Sleep(ctx, delay) {
			message(payload)
		}
	})
}

func newLines(n int) *lines {
	ls := &lines{drops: make(map[int]operation)}
	for i := range n {
		ls.nodes = append(ls.nodes, newModel(fmt.Sprint("node ", i)))
	}
	return ls
}

func (ls *lines) driver(faulty bool, opts ...Option) *Driver {
	names := make([]string, len(ls.nodes))
	for i, m := range ls.nodes {
		names[i] = m.label
	}
	return newDriver(names, func(time.Duration) ([]wire, error) {
		var ws []wire
		for i, m := range ls.nodes {
			if faulty {
				ws = append(ws, line{m, ls, i})
			} else {
				ws = append(ws, m)
			}
		}
		return ws, nil
	}, opts)
}

var operations = map[drivertest.Op]operation{
	drivertest.OpAcquire: opVote,
	drivertest.OpRenew:   opRenew,
	drivertest.OpRelease: opEnd,
}

// TestConformanceOverModelledNodes needs no server, so that it shows whether a failure
// is the driver's or the scripts'.
func TestConformanceOverModelledNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole suite once more")
	}
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			drivertest.Run(t, func(*testing.T) *drivertest.Harness {
				ls := newLines(n)
				return &drivertest.Harness{
					Driver: ls.driver(true),
					Peer:   ls.driver(false),
					Stall: func() func() {
						ls.mu.Lock()
						defer ls.mu.Unlock()
						gate := make(chan struct{})
						ls.gate = gate
						return sync.OnceFunc(func() {
							ls.mu.Lock()
							defer ls.mu.Unlock()
							if ls.gate == gate {
								ls.gate = nil
							}
							close(gate)
						})
					},
					DropReply: func(op drivertest.Op) func() bool {
						ls.mu.Lock()
						defer ls.mu.Unlock()
						for i := range ls.nodes {
							ls.drops[i] = operations[op]
						}
						return func() bool {
							ls.mu.Lock()
							defer ls.mu.Unlock()
							return len(ls.drops) < n
						}
					},
					DelayReplies: func(d time.Duration) func() {
						ls.mu.Lock()
						defer ls.mu.Unlock()
						ls.delay = d
						return func() {
							ls.mu.Lock()
							defer ls.mu.Unlock()
							ls.delay = 0
						}
					},
					LosePushes: func() func() {
						ls.mu.Lock()
						defer ls.mu.Unlock()
						ls.deaf++
						return sync.OnceFunc(func() {
							ls.mu.Lock()
							defer ls.mu.Unlock()
							ls.deaf--
						})
					},
					Wipe: func() {
						for _, m := range ls.nodes {
							m.wipe()
						}
					},
				}
			})
		})
	}
}
