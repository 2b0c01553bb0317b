package memlock

import (
	"context"
	"encoding/binary"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

type deaf struct{}

func (deaf) Waiting(driver.ID)         {}
func (deaf) Contended(driver.ID, bool) {}
func (deaf) Lost(driver.ID, error)     {}

func nth(n int) (o driver.Owner) {
	binary.LittleEndian.PutUint64(o[:], uint64(n)+1)
	return o
}

// kept returns how many keys, waiters, spare locks and ended owners d keeps.
func kept(d *Driver) (keys, waiters, spare, over int) {
	for i := range d.shard {
		sh := &d.shard[i]
		keys += len(sh.keys)
		waiters += len(sh.waiting)
		spare += len(sh.spare)
		over += len(sh.ended.young) + len(sh.ended.old)
	}
	return keys, waiters, spare, over
}

func TestKeyWithoutHolderAndWaitersTakesNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("locks a million keys")
	}
	d := New()
	s, _ := d.Open(driver.Config{Sink: deaf{}, StoreTimeout: time.Second})
	ctx := context.Background()
	const n = 100_000
	last := int64(0)
	for i := range n {
		g, err := s.Acquire(ctx, driver.Request{ID: driver.ID{Key: "k" + strconv.Itoa(i), Owner: nth(i)}, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		last = max(last, g.Token)
	}
	for i := range n {
		id := driver.ID{Key: "k" + strconv.Itoa(i), Owner: nth(i)}
		if err := s.Release(ctx, []driver.Ending{{ID: id}})[0]; err != nil {
			t.Fatal(err)
		}
	}
	keys, waiters, spare, over := kept(d)
	if keys != 0 || waiters != 0 || spare > shards*spares || over > 2*shards*remembered {
		t.Errorf("%d keys, %d waiters, %d spare locks and %d ended owners are kept", keys, waiters, spare, over)
	}
	for i := range d.shard {
		if d.shard[i].keys != nil {
			t.Fatal("a map has kept the memory of its past keys")
		}
	}
	g, err := s.Acquire(ctx, driver.Request{ID: driver.ID{Key: "k0", Owner: nth(n)}, TTL: time.Minute})
	if err != nil || g.Token <= 0 {
		t.Fatal(g, err)
	}
}

func TestTokensOfAForgottenKeyStillRise(t *testing.T) {
	d := New()
	s, _ := d.Open(driver.Config{Sink: deaf{}, StoreTimeout: time.Second})
	last := int64(0)
	for i := range 1000 {
		id := driver.ID{Key: "k", Owner: nth(i)}
		g, err := s.Acquire(context.Background(), driver.Request{ID: id, TTL: time.Minute})
		if err != nil || g.Token <= last {
			t.Fatalf("token %d follows %d, error %v", g.Token, last, err)
		}
		last = g.Token
		s.Release(context.Background(), []driver.Ending{{ID: id}})
		if keys, _, _, _ := kept(d); keys != 0 {
			t.Fatal("the key was not forgotten")
		}
	}
}

func TestLeasesThatNobodyReleasesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		s, _ := d.Open(driver.Config{Sink: deaf{}, StoreTimeout: time.Second})
		for i := range 4 * shards * roomy {
			id := driver.ID{Key: "k" + strconv.Itoa(i), Owner: nth(i)}
			if _, err := s.Acquire(context.Background(), driver.Request{ID: id, TTL: time.Second}); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 0 {
				time.Sleep(time.Second)
			}
		}
		if keys, _, _, _ := kept(d); keys > 2*shards*roomy {
			t.Errorf("%d keys are kept, of which 1000 are held", keys)
		}
	})
}

func TestLatestEndedOwnersAreRemembered(t *testing.T) {
	var e ended
	for i := range 10 * remembered {
		h := over
		if i%2 == 0 {
			h = released
		}
		e.add(nth(i), h)
		e.add(nth(i), over)
		for j := max(0, i-remembered+1); j <= i; j += 17 {
			want := over
			if j%2 == 0 {
				want = released
			}
			if got := e.how(nth(j)); got != want {
				t.Fatalf("after %d ends the %dth is remembered as %d, want %d", i, j, got, want)
			}
		}
		if n := len(e.young) + len(e.old); n > 2*remembered {
			t.Fatalf("%d owners are remembered", n)
		}
	}
}

func TestWithdrawnCrowdTakesNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New()
		s, _ := d.Open(driver.Config{Sink: deaf{}, StoreTimeout: time.Second})
		if _, err := s.Acquire(context.Background(), driver.Request{ID: driver.ID{Key: "k", Owner: nth(0)}, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		for i := range 2 * roomy {
			go func() {
				_, _ = s.Acquire(ctx, driver.Request{ID: driver.ID{Key: "k", Owner: nth(i + 1)}, TTL: time.Minute, Wait: true})
			}()
		}
		synctest.Wait()
		if _, waiters, _, _ := kept(d); waiters != 2*roomy {
			t.Fatalf("%d wait, want %d", waiters, 2*roomy)
		}
		cancel()
		synctest.Wait()
		if sh := d.of("k"); sh.waiting != nil || sh.keys["k"].n != 0 || sh.keys["k"].alarm.stop != nil {
			t.Error("waiters that withdrew are still known, or watched for")
		}
	})
}

func TestAlarmThatIsDueRingsAtOnce(t *testing.T) {
	c := NewClock(time.Unix(100, 0))
	rang := make(chan struct{})
	c.at(time.Unix(100, 0), func() { close(rang) })()
	<-rang
}

func TestStoppedAlarmNeverRings(t *testing.T) {
	c := NewClock(time.Unix(100, 0))
	stop := c.at(time.Unix(101, 0), func() { t.Error("it rang") })
	stop()
	stop()
	c.Advance(time.Hour)
}
