package cachetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/lockaround/lockaround/decorator/cache"
)

// source is what a cache is of: a number that rises with every change.
type source struct {
	key     string
	version atomic.Int64
	tokens  atomic.Int64
	mu      sync.Mutex
	floors  []atomic.Int64 // for each handle: the version that was last invalidated by it
}

// testFreshness loads, changes and reads at once, without a lock: whoever invalidates after a
// change never reads what was before it, however loads and invalidations overlap.
func testFreshness(f *fixture) {
	handles, floorOf := []handle{f.handle, f.peer()}, []int{0, 1}
	if f.h.Settle == nil {
		floorOf[1] = 0 // each sees at once what the other has done
	}
	sources := make([]*source, 2)
	for i := range sources {
		sources[i] = &source{key: fmt.Sprint(f.key, ":", i), floors: make([]atomic.Int64, 2)}
	}
	const workers, rounds = 3, 600
	var hits atomic.Int64
	var all sync.WaitGroup
	for i, h := range handles {
		for _, s := range sources {
			floor := &s.floors[floorOf[i]]
			for range workers {
				all.Go(func() {
					for range rounds {
						hit := s.check(h, floor.Load())
						if hit {
							hits.Add(1)
						}
						switch n := rand.IntN(20); {
						case n == 0:
							s.change(h, floor)
						case n < 4 || !hit:
							s.load(h)
						}
					}
				})
			}
		}
	}
	all.Wait()
	if hits.Load() == 0 {
		f.t.Error("no value was ever read, so nothing was tested")
	}
	f.settle()
	for i, h := range handles {
		for _, s := range sources {
			s.check(h, max(s.floors[0].Load(), s.floors[1].Load()))
			if token := s.tokens.Add(1); i == 0 {
				h.load(s.key, token, fmt.Sprint(s.version.Load()), long)
				h.mustHave(s.key, fmt.Sprint(s.version.Load()))
			}
		}
	}
}

// load is a loader's way.
func (s *source) load(h handle) {
	token := s.tokens.Add(1)
	_, err := h.store.Claim(h.t.Context(), s.key, token, long)
	if errors.Is(err, cache.ErrSuperseded) {
		return
	}
	if err != nil {
		h.t.Errorf("claim: %v", err)
		return
	}
	value := strconv.FormatInt(s.version.Load(), 10)
	for range rand.IntN(3) {
		runtime.Gosched()
	}
	if _, err := h.store.Put(h.t.Context(), s.key, token, []byte(value), long); err != nil {
		h.t.Errorf("put: %v", err)
	}
}

// change is a writer's way: commit, then invalidate.
func (s *source) change(h handle, floor *atomic.Int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.version.Add(1)
	if err := h.store.Invalidate(h.t.Context(), s.key); err != nil {
		h.t.Errorf("invalidate: %v", err)
		return
	}
	floor.Store(v)
}

// check reads, and reports whether there was a value.
func (s *source) check(h handle, floor int64) bool {
	e, err := h.store.Get(h.t.Context(), s.key)
	if err != nil {
		h.t.Errorf("get: %v", err)
		return false
	}
	if e.Value == nil {
		return false
	}
	if v, err := strconv.ParseInt(string(e.Value), 10, 64); err != nil || v < floor {
		h.t.Errorf("read version %q after %d had been invalidated", e.Value, floor)
	}
	return true
}
