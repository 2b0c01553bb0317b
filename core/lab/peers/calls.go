package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is measured as users have it: by its engine
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"  //nolint:depguard // what it costs is to be known
	"github.com/lockaround/lockaround/middleware" //nolint:depguard // the same
)

// Calls says what a call costs without a lock and with one that nobody else wants.
type Calls struct {
	Without time.Duration `json:"without"`
	With    time.Duration `json:"with"`
	Allocs  float64       `json:"allocs"` // of memory, for each call with a lock
}

// calling measures one caller without contention. open returns the same call without a
// lock and with one.
func calling(open func(*core.Engine) (without, with func() error, err error)) func(context.Context, *stage) {
	return func(_ context.Context, s *stage) {
		locks, err := core.New(memlock.New(), append(silent, core.WithNamespace("lab"))...)
		if err != nil {
			s.refused(err)
			return
		}
		defer locks.Close()
		s.call(open(locks))
	}
}

// again calls with a lease in Redis that lingers from call to call.
func again(_ context.Context, s *stage) {
	s.call(aFunction(s.process.(*engineProcess).locks, core.Policy{Key: "stock:{SKU}", Linger: time.Minute}))
}

// call measures what open has returned.
func (s *stage) call(without, with func() error, err error) {
	began := time.Now()
	var c Calls
	var n int64
	if err == nil {
		c, n, err = compareCalls(without, with, s.pace)
	}
	if err != nil {
		s.refused(err)
		return
	}
	s.outcome.Calls, s.outcome.Sections = c, n
	s.outcome.Began, s.outcome.Ended = began.UnixNano(), time.Now().UnixNano()
}

// compareCalls alternates between the two, so that what else the machine does hits both,
// and takes the medians. It returns how many calls there were with a lock.
func compareCalls(without, with func() error, pace Pace) (c Calls, n int64, err error) {
	const turns = 15
	var bare, locked []time.Duration
	for turn := range turns + 1 {
		one, _, _, err := callFor(without, pace.Watch/turns/2)
		if err != nil {
			return c, n, err
		}
		other, calls, allocs, err := callFor(with, pace.Watch/turns/2)
		if err != nil {
			return c, n, err
		}
		if turn == 0 {
			continue // to warm up
		}
		bare, locked = append(bare, one), append(locked, other)
		c.Allocs += float64(allocs)
		n += calls
	}
	slices.Sort(bare)
	slices.Sort(locked)
	c.Without, c.With, c.Allocs = bare[turns/2], locked[turns/2], c.Allocs/float64(n)
	return c, n, nil
}

// callFor calls for that long, and returns how long one call took.
func callFor(call func() error, d time.Duration) (each time.Duration, calls int64, allocs uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	took := time.Duration(0)
	for took < d {
		for range 100 {
			if err := call(); err != nil {
				return 0, 0, 0, err
			}
		}
		calls += 100
		took = time.Since(began)
	}
	runtime.ReadMemStats(&after)
	return took / time.Duration(calls), calls, after.Mallocs - before.Mallocs, nil
}

// inMemory calls a function whose lock nobody else wants.
func inMemory(locks *core.Engine) (without, with func() error, err error) {
	return aFunction(locks, core.Policy{Key: "stock:{SKU}", Wait: time.Second})
}

// aFunction takes a struct of which one field is the key.
func aFunction(locks *core.Engine, p core.Policy) (without, with func() error, err error) {
	type request struct{ SKU string }
	deduct := func(context.Context, request) (int, error) { return 1, nil }
	locked, err := decorator.New(locks, p, deduct)
	if err != nil {
		return nil, nil, err
	}
	ctx, r := context.Background(), request{SKU: "a-1"}
	return func() error { _, err := deduct(ctx, r); return err },
		func() error { _, err := locked(ctx, r); return err }, nil
}

// aRoute takes its key from the path.
func aRoute(locks *core.Engine) (without, with func() error, err error) {
	gin.SetMode(gin.ReleaseMode)
	lock, err := middleware.New(locks, core.Policy{Key: "stock:{path.sku}", Wait: time.Second})
	if err != nil {
		return nil, nil, err
	}
	router := gin.New()
	done := func(c *gin.Context) { c.Status(http.StatusNoContent) }
	router.POST("/free/:sku/deduct", done)
	router.POST("/products/:sku/deduct", lock, done)
	serve := func(path string) func() error {
		return func() error {
			request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, path, http.NoBody)
			if err != nil {
				return err
			}
			w := answer{header: http.Header{}}
			router.ServeHTTP(&w, request)
			if w.status != http.StatusNoContent {
				return fmt.Errorf("the route said %d", w.status)
			}
			return nil
		}
	}
	return serve("/free/a-1/deduct"), serve("/products/a-1/deduct"), nil
}

// answer is a response that nobody reads.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }
func (a *answer) WriteHeader(status int)      { a.status = status }
