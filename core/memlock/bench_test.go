package memlock_test

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// owners makes distinct owners faster than a secure source could.
type owners struct{ n atomic.Uint64 }

func (o *owners) next() (w driver.Owner) {
	binary.LittleEndian.PutUint64(w[:], o.n.Add(1))
	return w
}

func benchSession(b *testing.B, d *memlock.Driver) driver.Session {
	s, err := d.Open(driver.Config{Sink: newSink(), StoreTimeout: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func takeAndRelease(b *testing.B, ctx context.Context, s driver.Session, r driver.Request, es []driver.Ending) {
	g, err := s.Acquire(ctx, r)
	if err != nil {
		b.Error(err)
		return
	}
	es[0] = driver.Ending{ID: g.ID, Token: g.Token, Deadline: g.Deadline}
	if err := s.Release(ctx, es)[0]; err != nil {
		b.Error(err)
	}
}

func BenchmarkFreeKey(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := benchSession(b, memlock.New())
	var o owners
	es := make([]driver.Ending, 1)
	b.ReportAllocs()
	for b.Loop() {
		takeAndRelease(b, ctx, s, driver.Request{ID: driver.ID{Key: "k", Owner: o.next()}, TTL: time.Minute}, es)
	}
}

// BenchmarkFreeKeys takes keys that nobody else wants, on all processors, among
// a million that are held.
func BenchmarkFreeKeys(b *testing.B) {
	for _, held := range []int{0, 1_000_000} {
		b.Run("held="+strconv.Itoa(held), func(b *testing.B) {
			ctx := context.Background()
			s := benchSession(b, memlock.New())
			var o owners
			for i := range held {
				r := driver.Request{ID: driver.ID{Key: "held" + strconv.Itoa(i), Owner: o.next()}, TTL: time.Hour}
				if _, err := s.Acquire(ctx, r); err != nil {
					b.Fatal(err)
				}
			}
			var n atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				key := "free" + strconv.FormatInt(n.Add(1), 10)
				es := make([]driver.Ending, 1)
				for pb.Next() {
					takeAndRelease(b, ctx, s, driver.Request{ID: driver.ID{Key: key, Owner: o.next()}, TTL: time.Minute}, es)
				}
			})
		})
	}
}

// BenchmarkHandOver passes one key round between sessions that all wait for it.
func BenchmarkHandOver(b *testing.B) {
	ctx := context.Background()
	d := memlock.New()
	var o owners
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		s := benchSession(b, d)
		es := make([]driver.Ending, 1)
		for pb.Next() {
			takeAndRelease(b, ctx, s, driver.Request{ID: driver.ID{Key: "k", Owner: o.next()}, TTL: time.Minute, Wait: true}, es)
		}
	})
}

func BenchmarkRenew(b *testing.B) {
	ctx := context.Background()
	s := benchSession(b, memlock.New())
	var o owners
	g, err := s.Acquire(ctx, driver.Request{ID: driver.ID{Key: "k", Owner: o.next()}, TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	rs := []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: time.Minute}}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Renew(ctx, rs)[0].Err; err != nil {
			b.Fatal(err)
		}
	}
}
