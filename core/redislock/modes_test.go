package redislock_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/testservers"
)

// readersVar is for how long the readers and writers contend; the default is 2 s.
const readersVar = "LOCKAROUND_READERS"

// library counts who is inside, and fails the test if a writer is not alone.
type library struct {
	mu               sync.Mutex
	readers, writers int
	most             int // readers at a time
	overlaps         int
	waits            map[core.Mode][]time.Duration
}

func (r *library) enter(m core.Mode, waited time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m == core.Shared {
		r.readers++
	} else {
		r.writers++
	}
	if r.writers > 1 || r.writers == 1 && r.readers > 0 {
		r.overlaps++
	}
	r.most = max(r.most, r.readers)
	r.waits[m] = append(r.waits[m], waited)
}

func (r *library) leave(m core.Mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m == core.Shared {
		r.readers--
	} else {
		r.writers--
	}
}

// TestReadersAndWritersShareAKeyFairly has 20 readers and 2 writers in four processes
// that ask again as soon as they have released. Nobody is starved: each is let in again and
// again, and if full counts are asked for no wait is longer than ten times the median of its
// kind, but for what the machine stands still.
func TestReadersAndWritersShareAKeyFairly(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	span := 2 * time.Second
	if text := os.Getenv(readersVar); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s is %q; a duration such as 30s is right", readersVar, text)
		}
	}
	server := testservers.Redis(t)
	var engines []*engine
	for range 4 {
		engines = append(engines, newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()})))
	}
	r := library{waits: make(map[core.Mode][]time.Duration)}
	machine := hiccups.Start(t)
	const callers, holds = 22, 5 // each caller's at least
	began := time.Now()
	var unserved atomic.Int32
	unserved.Store(callers)
	goesOn := func() bool { return time.Since(began) < span || unserved.Load() > 0 && time.Since(began) < span+hang }
	var all sync.WaitGroup
	for i := range callers {
		mode := core.Shared
		if i < 2 {
			mode = core.Exclusive
		}
		all.Go(func() {
			for n := 1; goesOn(); n++ {
				asked := time.Now()
				err := engines[i%4].Do(t.Context(), core.Policy{Key: "k", Mode: mode, Wait: core.Forever}, func(context.Context) error {
					r.enter(mode, time.Since(asked))
					pause(3 * time.Millisecond)
					r.leave(mode)
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				if n == holds {
					unserved.Add(-1)
				}
			}
		})
	}
	all.Wait()
	for mode, waits := range r.waits {
		slices.Sort(waits)
		median, worst := waits[len(waits)/2], waits[len(waits)-1]
		t.Logf("%s: %d holds, median wait %v, 99%% %v, worst %v (%.1f × the median)", mode, len(waits), median, waits[len(waits)*99/100], worst, float64(worst)/float64(median))
		if counts.Full(t) && worst > machine.Allow(10*median) {
			t.Errorf("a caller waited %v, more than ten times the median of %v", worst, median)
		}
	}
	t.Logf("at most %d readers at a time, %d overlaps; the machine oversleeps by up to %v", r.most, r.overlaps, machine.Worst())
	if n := unserved.Load(); n > 0 {
		t.Errorf("%d of %d callers were let in less than %d times", n, callers, holds)
	}
	if r.overlaps > 0 || r.most < 2 || len(r.waits) != 2 {
		t.Errorf("%d overlaps, at most %d readers at a time", r.overlaps, r.most)
	}
}

// pause is the work of a caller.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
