package core_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestReadersOfOneProcessShareALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counted{Driver: memlock.New()}
		e := open(t, d)
		first := mustAcquire(t, e, read.Policy)
		var others []*core.Lease
		for range 100 {
			others = append(others, mustAcquire(t, e, read.Policy))
		}
		if n := d.acquire.Load(); n != 1 {
			t.Errorf("%d requests for 101 readers; want 1", n)
		}
		seen := map[int64]bool{first.Token(): true}
		for _, l := range others {
			if seen[l.Token()] {
				t.Fatalf("token %d comes twice", l.Token())
			}
			seen[l.Token()] = true
			mustBe(t, l.Release(t.Context()), nil)
		}
		if n := d.release.Load(); n != 0 {
			t.Errorf("the share was given back while a reader holds it")
		}
		mustBe(t, first.Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, e, write.Policy).Release(t.Context()), nil)
	})
}

func TestWaitingWriterIsNotStarvedByReaders(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprint("of the same process ", same), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				readers, writers := open(t, d), open(t, d)
				if same {
					writers = readers
				}
				var stop atomic.Bool
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						for !stop.Load() {
							mustBe(t, readers.Do(t.Context(), read.Policy, func(context.Context) error {
								time.Sleep(10 * time.Millisecond)
								return nil
							}), nil)
							time.Sleep(time.Millisecond)
						}
					})
				}
				time.Sleep(100 * time.Millisecond)
				for range 10 {
					start := time.Now()
					mustBe(t, writers.Do(t.Context(), write.Policy, func(context.Context) error { return nil }), nil)
					if took := time.Since(start); took > 50*time.Millisecond {
						t.Errorf("a writer waited %v among readers of 10 ms", took)
					}
					time.Sleep(5 * time.Millisecond)
				}
				stop.Store(true)
				all.Wait()
			})
		})
	}
}

func TestReadersAreNotStarvedByWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		var stop atomic.Bool
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for !stop.Load() {
					mustBe(t, []*core.Engine{e, other}[i%2].Do(t.Context(), write.Policy, func(context.Context) error {
						time.Sleep(time.Millisecond)
						return nil
					}), nil)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		for range 10 {
			start := time.Now()
			mustBe(t, e.Do(t.Context(), read.Policy, func(context.Context) error { return nil }), nil)
			if took := time.Since(start); took > 200*time.Millisecond {
				t.Errorf("a reader waited %v among writers of 1 ms", took)
			}
		}
		stop.Store(true)
		all.Wait()
	})
}

func TestEachReaderEndsByItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		short := read.Policy
		short.TTL, short.NoRenew = time.Second, true
		bounded := read.Policy
		bounded.MaxHold = 2 * time.Second
		long := mustAcquire(t, e, read.Policy)
		a, b := mustAcquire(t, e, short), mustAcquire(t, e, bounded)
		<-a.Done()
		mustBe(t, a.Err(), core.ErrLost)
		mustBe(t, b.Err(), nil)
		<-b.Done()
		mustBe(t, b.Err(), core.ErrMaxHold)
		time.Sleep(10 * time.Minute)
		mustBe(t, long.Err(), nil)
		mustBe(t, long.Check(t.Context()), nil)
		mustBe(t, a.Release(t.Context()), core.ErrLost)
		mustBe(t, b.Release(t.Context()), core.ErrMaxHold)
		mustBe(t, long.Release(t.Context()), nil)
	})
}

func TestReaderIsLetInOnlyIfTheShareLastsLongEnoughForIt(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("having waited ", waits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				e, other := open(t, d), open(t, d)
				short, long := read.Policy, read.Policy
				short.TTL = time.Second
				long.NoRenew, long.TTL = true, 30*time.Second
				var writer *core.Lease
				if waits {
					writer = mustAcquire(t, other, write.Policy)
				}
				got := make(chan *core.Lease, 2)
				for _, p := range []core.Policy{short, long} {
					go func() { got <- mustAcquire(t, e, p) }()
					synctest.Wait()
				}
				if waits {
					mustBe(t, writer.Release(t.Context()), nil)
				}
				a, b := <-got, <-got
				if b.Deadline().Before(a.Deadline()) {
					a, b = b, a
				}
				mustBe(t, a.Release(t.Context()), nil)
				time.Sleep(25 * time.Second)
				mustBe(t, b.Err(), nil)
				mustBe(t, b.Release(t.Context()), nil)
			})
		})
	}
}

func TestLossOfAShareIsToldToAllWhoHoldIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		var leases []*core.Lease
		for range 3 {
			leases = append(leases, mustAcquire(t, e, read.Policy), mustAcquire(t, other, read.Policy))
		}
		d.Expire("test/k")
		for _, l := range leases {
			<-l.Done()
			mustBe(t, l.Release(t.Context()), core.ErrLost)
		}
		mustBe(t, mustAcquire(t, e, write.Policy).Release(t.Context()), nil)
	})
}
