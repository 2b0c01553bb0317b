package etcdlock_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/hiccups"
)

// slow is how much longer than it should a server may take that shares its machine with
// others.
const slow = 5 * time.Second

func TestKeptKeyIsFreedByItsProcessOrByItsLease(t *testing.T) {
	t.Parallel()
	const keep = 500 * time.Millisecond
	server := etcdtest.Start(t)
	next := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	for _, tt := range []struct {
		name   string
		closed bool
		most   time.Duration
	}{
		{"by its process", false, keep + 1500*time.Millisecond},
		{"by its lease", true, keep + 6*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := hiccups.Start(t)
			proxy := etcdtest.NewProxy(t, server.Addr())
			p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
			start := time.Now()
			g := p.take("k", long)
			e := ending(g)
			e.Keep = keep
			if err := p.Release(within(t), []driver.Ending{e})[0]; err != nil {
				t.Fatal(err)
			}
			st, err := next.Inspect(within(t), "k")
			if time.Since(start) < keep && (err != nil || len(st.Holders) != 1 || !st.Holders[0].Kept) {
				t.Errorf("of a key that is kept, Inspect says %+v, %v", st, err)
			}
			if tt.closed {
				if err := p.Close(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			r := request("k", long)
			r.Wait = true
			g, err = next.Acquire(within(t), r)
			if err != nil {
				t.Fatalf("acquire of a key that is kept for %v: %v", keep, err)
			}
			took := time.Since(start)
			t.Logf("a key kept for %v went to the next after %v", keep, took)
			if took < keep {
				t.Errorf("a key kept for %v was free after %v", keep, took)
			}
			if limit := machine.Allow(tt.most + slow); took > limit {
				t.Errorf("a key kept for %v was free after %v, want at most %v, or %v on this machine", keep, took, tt.most, limit)
			}
			// The first is of the lease that was released, the second ends the keeping.
			for !tt.closed && proxy.Count(methodRevoke) < 2 {
				if time.Since(start) > patience {
					t.Fatal("the process has never ended the keeping")
				}
				yield()
			}
			next.drop(g)
		})
	}
}

func TestHolderThatIsGoneDelaysTheNextByItsTTL(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	c := etcdtest.Client(t, server.Addr())
	gone, next := open(t, etcdlock.New(c)), open(t, etcdlock.New(c))
	const ttl = 2 * time.Second
	machine := hiccups.Start(t)
	start := time.Now()
	gone.take("k", ttl) // and never renews it
	r := request("k", long)
	r.Wait = true
	g, err := next.Acquire(within(t), r)
	if err != nil {
		t.Fatalf("acquire after a holder that is gone: %v", err)
	}
	took := time.Since(start)
	t.Logf("after a holder with a TTL of %v is gone the next is served after %v", ttl, took)
	if limit := machine.Allow(ttl + 4*time.Second + slow); took < ttl || took > limit {
		t.Errorf("the next was served after %v, want %v to %v, or %v on this machine", took, ttl, ttl+4*time.Second, limit)
	}
	next.drop(g)
}
