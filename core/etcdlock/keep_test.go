package etcdlock_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
)

func TestKeptKeyIsFreedByItsProcessOrByItsLease(t *testing.T) {
	const keep = 500 * time.Millisecond
	server := etcdtest.Start(t)
	c := etcdlock.New(etcdtest.Client(t, server.Addr()))
	next := open(t, c, 2*time.Second)
	for _, tt := range []struct {
		name   string
		closed bool
		most   time.Duration
	}{
		{"by its process", false, keep + 1500*time.Millisecond},
		{"by its lease", true, keep + 6*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := open(t, c, 2*time.Second)
			start := time.Now()
			g := p.take("k", long)
			e := ending(g)
			e.Keep = keep
			if err := p.Release(within(t, 10*time.Second), []driver.Ending{e})[0]; err != nil {
				t.Fatal(err)
			}
			st, err := next.Inspect(within(t, 10*time.Second), "k")
			if time.Since(start) < keep && (err != nil || len(st.Holders) != 1 || !st.Holders[0].Kept) {
				t.Errorf("of a key that is kept, Inspect says %+v, %v", st, err)
			}
			if tt.closed {
				if err := p.Close(within(t, 5*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			r := request("k", long)
			r.Wait = true
			g, err = next.Acquire(within(t, tt.most), r)
			if err != nil {
				t.Fatalf("acquire of a key that is kept for %v: %v", keep, err)
			}
			took := time.Since(start)
			t.Logf("a key kept for %v went to the next after %v", keep, took)
			if took < keep {
				t.Errorf("a key kept for %v was free after %v", keep, took)
			}
			next.drop(g)
		})
	}
}

func TestHolderThatIsGoneDelaysTheNextByItsTTL(t *testing.T) {
	server := etcdtest.Start(t)
	c := etcdtest.Client(t, server.Addr())
	gone, next := open(t, etcdlock.New(c), 2*time.Second), open(t, etcdlock.New(c), 2*time.Second)
	const ttl = 2 * time.Second
	start := time.Now()
	gone.take("k", ttl) // and never renews it
	r := request("k", long)
	r.Wait = true
	g, err := next.Acquire(within(t, 10*time.Second), r)
	if err != nil {
		t.Fatalf("acquire after a holder that is gone: %v", err)
	}
	took := time.Since(start)
	t.Logf("after a holder with a TTL of %v is gone the next is served after %v", ttl, took)
	if took < ttl || took > ttl+4*time.Second {
		t.Errorf("the next was served after %v", took)
	}
	next.drop(g)
}
