package redislock_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// schedulesToRun are 1,000, or 50 with -short. Each is from a seed of its own, of which the first
// is returned too.
func schedulesToRun(t *testing.T) (seed, n uint64) {
	t.Helper()
	return counts.Seeds(t, "schedules", 1, counts.Short(50, 1000), 100_000)
}

// TestSimulation runs whole engines in virtual time against the reference server
// over a network that fails on purpose, each schedule from a seed of its own, and
// checks what the driver and the engine promise together.
func TestSimulation(t *testing.T) {
	t.Parallel()
	next, schedules := schedulesToRun(t)
	over := next + schedules
	var mu sync.Mutex
	total := make(map[string]int)
	draw := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == over || t.Failed() {
			return 0, false
		}
		next++
		return next - 1, true
	}
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for seed, ok := draw(); ok && !t.Failed(); seed, ok = draw() {
					tally := simulate(t, seed)
					mu.Lock()
					for what, n := range tally {
						total[what] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Log(total)
	if t.Failed() || schedules < 200 {
		return
	}
	// What never happened has not been tried.
	for _, what := range []string{
		"granted", "granted after queueing", "handed off", "busy", "timed out", "cancelled", "unavailable", "lost",
		"granted exclusive", "granted shared", "granted semaphore", "granted strictly", "granted several keys", "downgraded", "extended", "ousted",
		"nested", "deadlock", "checked", "MaxHold", "MinHold", "NoRenew", "Sent", "died",
		"push g", "push w", "push e", "acquire granted", "acquire queued", "acquire busy", "acquire over",
		"end ended", "end withdrawn", "end notmine", "end absent", "renew ok", "renew lost",
	} {
		if total[what] == 0 {
			t.Errorf("no schedule contained %q", what)
		}
	}
	t.Attr("figure-5", fmt.Sprintf("%d seeds, %d grants: 0 violations", schedules, total["granted"]))
}

// simulate runs one schedule and returns its tally.
func simulate(t *testing.T, seed uint64) (tally map[string]int) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("%s\n%v", replay(seed), p))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, seed)
		s.run()
		tally = s.Counts()
		if broken := s.Check(s.rules()); len(broken) > 0 {
			t.Fatalf("%s\n%s\n\n%s\n%s", replay(seed), strings.Join(broken, "\n"), s.plan(), s.History.String())
		}
	})
	return tally
}

func replay(seed uint64) string {
	return fmt.Sprintf("simulation: seed %d fails; replay it with\n  %s=%d go test -count=1 -run 'TestSimulation$' ./core/redislock", seed, counts.Seed, seed)
}
