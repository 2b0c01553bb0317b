package redlock

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/endurance"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/testservers"
)

// fleet is real servers, each reached through a proxy or past it.
type fleet struct {
	t       testing.TB
	servers []*testservers.Server
	proxies []*redistest.Proxy
	proxied []*redis.Client
	direct  []*redis.Client
}

// startFleet starts n servers, which end with the test.
func startFleet(t testing.TB, n int, args ...string) *fleet {
	t.Helper()
	return newFleet(t, startServers(t, n, args...))
}

func startServers(t testing.TB, n int, args ...string) []*testservers.Server {
	t.Helper()
	servers := make([]*testservers.Server, n)
	for i := range servers {
		servers[i] = testservers.Redis(t, args...)
	}
	return servers
}

// newFleet makes the ways to servers, which know the scripts after it.
func newFleet(t testing.TB, servers []*testservers.Server) *fleet {
	t.Helper()
	f := &fleet{t: t, servers: servers}
	for _, s := range servers {
		p := redistest.NewProxy(t, s.Addr())
		f.proxies = append(f.proxies, p)
		f.proxied = append(f.proxied, newClient(t, p.Addr()))
		f.direct = append(f.direct, newClient(t, s.Addr()))
	}
	f.teach()
	return f
}

func newClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// teach loads the scripts, so that a request is one command.
func (f *fleet) teach() {
	f.t.Helper()
	for _, c := range f.direct {
		for _, s := range scripts {
			if err := c.ScriptLoad(f.t.Context(), s.source).Err(); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// each calls f with every proxy and returns what undoes all.
func (f *fleet) each(do func(*redistest.Proxy) func()) (undo func()) {
	var all []func()
	for _, p := range f.proxies {
		all = append(all, do(p))
	}
	return sync.OnceFunc(func() {
		for _, undo := range all {
			undo()
		}
	})
}

func (f *fleet) wipe() {
	f.t.Helper()
	for _, c := range f.direct {
		if err := c.FlushAll(f.t.Context()).Err(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// runs matches a request that runs a script, by its name or its source.
func runs(op operation) func(request []byte) bool {
	s := scripts[op]
	return func(request []byte) bool {
		return bytes.Contains(request, []byte(s.sha)) || bytes.Contains(request, []byte(s.source))
	}
}

func (f *fleet) harness() *drivertest.Harness {
	return &drivertest.Harness{
		Driver: New(f.proxied),
		Peer:   New(f.direct),
		Refuse: func() (string, func()) { return redistest.Refuse(f.t, f.direct...) },
		Stall:  func() func() { return f.each((*redistest.Proxy).Stall) },
		DropReply: func(op drivertest.Op) func() bool {
			var dropped []func() bool
			for _, p := range f.proxies {
				dropped = append(dropped, p.DropReply(runs(operations[op])))
			}
			return func() bool {
				for _, d := range dropped {
					if d() {
						return true
					}
				}
				return false
			}
		},
		DelayReplies: func(d time.Duration) func() {
			return f.each(func(p *redistest.Proxy) func() { return p.DelayReplies(d) })
		},
		LosePushes: func() func() { return f.each((*redistest.Proxy).LosePushes) },
		Restart: func() {
			for _, s := range f.servers {
				s.Restart()
			}
		},
		Wipe: f.wipe,
	}
}

// harnesses returns what makes harnesses. Those that are to restart servers, to wipe
// them or to have them refuse have some of their own. All others share some, by proxies of their own.
func harnesses(t *testing.T, n int) func(t *testing.T) *drivertest.Harness {
	shared := startServers(t, n)
	return func(t *testing.T) *drivertest.Harness {
		if strings.Contains(t.Name(), "Restart") || strings.Contains(t.Name(), "LossOfData") || strings.Contains(t.Name(), "StoresRefusal") {
			return startFleet(t, n, "--appendonly", "yes", "--appendfsync", "always").harness()
		}
		h := newFleet(t, shared).harness()
		h.Restart, h.Wipe = nil, nil
		return h
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%dNodes", n), func(t *testing.T) { drivertest.Run(t, harnesses(t, n)) })
	}
}

func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	endurance.Run(t, harnesses(t, 3))
}

// holder is whose the key is at a node, which may not be known.
func (f *fleet) holder(t testing.TB, node int, key string) string {
	o, err := f.direct[node].HGet(t.Context(), hashPrefix+key, "o").Result()
	if err != nil && err != redis.Nil {
		return "unknown"
	}
	return o
}

// votes counts the nodes at which the key is somebody's.
func (f *fleet) votes(t testing.TB, key string) int {
	n := 0
	for i := range f.direct {
		if f.holder(t, i, key) != "" {
			n++
		}
	}
	return n
}

// accepted counts the nodes that have accepted the token.
func (f *fleet) accepted(t testing.TB, key string, token int64) int {
	n := 0
	for _, c := range f.direct {
		if got, _ := c.HGet(t.Context(), hashPrefix+key, "a").Int64(); got == token {
			n++
		}
	}
	return n
}
