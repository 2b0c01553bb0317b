package cachetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

// model is what the contract says of one key. The store has another clock, and an answer
// takes time, so that ends are known within bounds.
type model struct {
	value     []byte
	endsAfter time.Time // the value is there until then
	endsBy    time.Time // it is gone from then on

	token       int64     // 0: none has claimed
	put         bool      // the claim has put
	invalidated bool      // the claim has been
	standsUntil time.Time // at least

	slowest time.Duration // of all reads; an answer may have been kept as a copy
}

// span is when a call was made, and when it had returned.
type span struct{ began, ended time.Time }

// rounding is what a store may lose of a ttl because it counts whole milliseconds.
const rounding = 2 * time.Millisecond

// read compares an entry that was read with the model.
func (m *model) read(e cache.Entry, s span) error {
	m.slowest = max(m.slowest, s.ended.Sub(s.began))
	least := m.endsAfter.Sub(s.ended) - 2*m.slowest - rounding // a copy's end is reckoned from before the reading
	switch {
	case e.Value == nil && m.value != nil && least > 0:
		return fmt.Errorf("nothing was read; want %q, which has %v left", m.value, least)
	case e.Value == nil:
		return nil
	case m.value == nil:
		return fmt.Errorf("%q was read; want nothing", e.Value)
	case !bytes.Equal(e.Value, m.value):
		return fmt.Errorf("%q was read; want %q", e.Value, m.value)
	case !s.began.Before(m.endsBy):
		return fmt.Errorf("%q was read %v after its end", e.Value, s.began.Sub(m.endsBy))
	case e.Left < least || s.began.Add(e.Left).After(m.endsBy):
		return fmt.Errorf("%v are left; want %v to %v", e.Left, least, m.endsBy.Sub(s.began))
	}
	return nil
}

// claim compares the answer to a claim with the model, and goes by it.
func (m *model) claim(token int64, ttl time.Duration, e cache.Entry, err error, s span) error {
	stands := s.ended.Before(m.standsUntil)
	behind := m.token > token || m.token == token && m.invalidated
	switch {
	case err != nil && !errors.Is(err, cache.ErrSuperseded):
		return err
	case err != nil && !behind:
		return fmt.Errorf("claim of %d after %d is superseded", token, m.token)
	case err != nil:
		return nil
	case behind && stands:
		return fmt.Errorf("claim of %d after %d is not superseded", token, m.token)
	}
	m.token, m.put, m.invalidated = token, false, false
	if until := s.began.Add(ttl - rounding); until.After(m.standsUntil) {
		m.standsUntil = until
	}
	return m.read(e, s)
}

// putting compares the answer to a put with the model, and goes by it.
func (m *model) putting(token int64, value []byte, ttl time.Duration, stored bool, s span) error {
	mine := m.token == token && !m.invalidated
	switch {
	case stored && !mine:
		return fmt.Errorf("put of %d is stored; the claim is of %d, invalidated: %t", token, m.token, m.invalidated)
	case !stored && mine && s.ended.Before(m.standsUntil):
		return fmt.Errorf("put of %d is refused", token)
	case stored && !m.put:
		m.value, m.put = value, true
		m.endsAfter, m.endsBy = s.began.Add(ttl), s.ended.Add(ttl)
	}
	return nil
}

func (m *model) invalidate() { m.value, m.invalidated = nil, true }

// steps of the model, by so many callers, each on keys of its own.
const (
	steps   = 10_000
	callers = 4
)

func testModel(f *fixture) {
	var all sync.WaitGroup
	for i := range callers {
		seed := rand.Uint64()
		f.t.Logf("seed of caller %d: %d", i, seed)
		all.Go(func() { f.walk(fmt.Sprint(f.key, i), rand.New(rand.NewPCG(seed, 0))) })
	}
	all.Wait()
}

// walk takes random steps on a few keys and compares each with the model.
func (f *fixture) walk(prefix string, r *rand.Rand) {
	models := make([]model, 3)
	ttls := []time.Duration{3 * time.Millisecond, 20 * time.Millisecond, long, 2 * long}
	for step := range steps / callers {
		k := r.IntN(len(models))
		m, key := &models[k], fmt.Sprint(prefix, ":", k)
		token, ttl := max(m.token+r.Int64N(4)-2, 1), ttls[r.IntN(len(ttls))]
		if m.token == 0 {
			token = 1<<53 + r.Int64N(4)
		}
		s := span{began: time.Now()}
		var err error
		var did string
		switch n := r.IntN(100); {
		case n < 35:
			var e cache.Entry
			did = "get"
			if e, err = f.store.Get(f.t.Context(), key); err == nil {
				s.ended = time.Now()
				err = m.read(e, s)
			}
		case n < 60:
			did = fmt.Sprintf("claim of %d for %v", token, ttl)
			e, claimErr := f.store.Claim(f.t.Context(), key, token, ttl)
			s.ended = time.Now()
			err = m.claim(token, ttl, e, claimErr, s)
		case n < 85:
			did = fmt.Sprintf("put of %d for %v", token, ttl)
			value := fmt.Appendf(nil, "%d in step %d", token, step)
			var stored bool
			if stored, err = f.store.Put(f.t.Context(), key, token, value, ttl); err == nil {
				s.ended = time.Now()
				err = m.putting(token, value, ttl, stored, s)
			}
		case n < 95:
			did = "invalidate"
			err = f.store.Invalidate(f.t.Context(), key)
			m.invalidate()
		default:
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		}
		if err != nil {
			f.t.Errorf("step %d, %s: %v", step, did, err)
			return
		}
	}
}

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

var failureChecks = []check{
	{"ForgottenClaimStoresNothing", needs(forgetting), func(f *fixture) {
		f.claim(f.key, 5, long)
		f.h.Forget()
		f.mustNotPut(f.key, 5, "v")
		f.mustHaveNone(f.key)
		f.load(f.key, 3, "w", long)
		f.mustHave(f.key, "w")
	}},
	{"ClaimSurvivesALostReply", needs(losing), func(f *fixture) {
		lost := f.losing()
		if _, err := f.store.Claim(f.t.Context(), f.key, 5, long); errors.Is(err, cache.ErrSuperseded) {
			f.t.Errorf("claim without a reply: %v", err)
		}
		lost()
		f.claim(f.key, 5, long)
		f.mustPut(f.key, 5, "v", long)
	}},
	{"PutSurvivesALostReply", needs(losing), func(f *fixture) {
		f.claim(f.key, 5, long)
		lost := f.losing()
		stored, err := f.store.Put(f.t.Context(), f.key, 5, []byte("v"), long)
		if err == nil && !stored {
			f.t.Error("put without a reply is refused")
		}
		lost()
		f.mustPut(f.key, 5, "v", long)
		f.mustHave(f.key, "v")
	}},
	{"InvalidationSurvivesALostReply", needs(losing), func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.get(f.key)
		lost := f.losing()
		_ = f.store.Invalidate(f.t.Context(), f.key) // whether it knows is its own
		lost()
		f.mustHaveNone(f.key)
		f.mustNotPut(f.key, 5, "v")
		f.invalidate(f.key)
		f.mustHaveNone(f.key)
	}},
}

// losing loses the reply to the next request; the function returned fails the check if none
// was lost, because it has then tested nothing.
func (f *fixture) losing() (wasLost func()) {
	lost := f.h.LoseReply()
	return func() {
		f.t.Helper()
		if !lost() {
			f.t.Fatal("the harness did not lose the reply, so nothing was tested")
		}
	}
}
