package redlock

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// schedulesToRun are 1,000, or 50 with -short. Each is from a seed of its own, of which the first
// is returned too.
func schedulesToRun(t *testing.T) (seed, n uint64) {
	t.Helper()
	return counts.Seeds(t, "schedules", 0, counts.Short(50, 1000), 400_000)
}

// TestSimulation runs sessions of the driver in virtual time over modelled nodes and a
// network that loses, delays and reorders, with processes that crash at any moment and
// nodes that lose their data, each schedule from a seed of its own.
//
// In odd schedules nodes have no clocks and never forget, so that tokens are proven to
// rise by counting alone. In even ones nodes lose their data and stay out for the
// largest TTL, so that the rule of the delayed restart is proven to be enough.
func TestSimulation(t *testing.T) {
	seed, n := schedulesToRun(t)
	total := make(map[string]int)
	var mu sync.Mutex // of total
	t.Run("schedules", func(t *testing.T) {
		each := uint64(runtime.GOMAXPROCS(0))
		for first := seed; first < seed+each; first++ {
			t.Run(fmt.Sprint("from seed ", first), func(t *testing.T) {
				t.Parallel()
				for at := first; at < seed+n && !t.Failed(); at += each {
					w := world{forgetful: at%2 == 0, delayed: true}
					tally := w.simulate(t, at)
					mu.Lock()
					for what, k := range tally {
						total[what] += k
					}
					mu.Unlock()
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Log(total)
	for _, what := range []string{"grants", "waits", "crashes", "losses of data", "partitions", "renewals", "held", "lost replies"} {
		if n >= 100 && total[what] == 0 {
			t.Errorf("no schedule had any %s", what)
		}
	}
	t.Attr("figure-5", fmt.Sprintf("%d seeds, %d grants: 0 violations", n, total["grants"]))
}

// TestWithoutRestartDelayTwoMayHold shows what the delayed restart is for: without it
// the simulation finds two holders at once.
func TestWithoutRestartDelayTwoMayHold(t *testing.T) {
	for seed := uint64(0); seed < 4000; seed += 2 {
		w := world{forgetful: true}
		probe := &finding{TB: t}
		w.simulate(probe, seed)
		if probe.text != "" {
			t.Logf("seed %d: %s", seed, probe.text)
			return
		}
	}
	t.Error("in no schedule did two hold the key at once, though nodes that had lost their data voted at once")
}

// finding keeps what a simulation finds, instead of failing.
type finding struct {
	testing.TB
	text string
}

func (f *finding) Errorf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

const (
	simulatedKey = "k"
	longestTTL   = 3 * time.Second
)

// world is one schedule.
type world struct {
	forgetful bool // nodes lose their data now and then
	delayed   bool // and stay out for the largest TTL

	mu     sync.Mutex
	rng    *mathrand.Rand
	nodes  []*model
	down   []bool
	calm   bool // the network works
	claims []span
	alone  []int64 // tokens that were granted, though no majority had accepted them
	counts map[string]int
	finish chan struct{}
}

// span is when a process believed that it held the key.
type span struct {
	from, to time.Time
	token    int64
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// draw returns a number in [0, n).
func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func (w *world) chance(percent int) bool { return w.draw(100) < percent }

func (w *world) span(most time.Duration) time.Duration {
	return time.Duration(w.draw(int(most)))
}

// simulate runs the schedule and reports what is wrong to t.
func (w *world) simulate(t testing.TB, seed uint64) map[string]int {
	w.rng = mathrand.New(mathrand.NewPCG(seed, 1))
	w.counts = make(map[string]int)
	bubble := t
	if f, ok := t.(*finding); ok {
		bubble = f.TB
	}
	synctest.Test(bubble.(*testing.T), func(*testing.T) {
		size := 3 + 2*w.draw(2)
		for i := range size {
			m := newModel(fmt.Sprint("node ", i))
			m.logic, m.saw = !w.forgetful, make(map[acceptance]bool)
			w.nodes = append(w.nodes, m)
		}
		w.down = make([]bool, size)
		w.finish = make(chan struct{})
		var rest, running sync.WaitGroup
		rest.Go(w.trouble)
		for range 2 + w.draw(4) {
			running.Go(w.caller)
		}
		running.Wait()
		close(w.finish)
		rest.Wait()
		w.quiet(t, seed)
		synctest.Wait()
	})
	w.verify(t, seed)
	return w.counts
}

// trouble befalls the nodes.
func (w *world) trouble() {
	for {
		select {
		case <-w.finish:
			return
		case <-time.After(w.span(2 * time.Second)):
		}
		i := w.draw(len(w.nodes))
		switch {
		case w.forgetful && w.chance(40):
			w.count("losses of data")
			w.nodes[i].wipe()
		default:
			w.mu.Lock()
			w.down[i] = !w.down[i]
			w.mu.Unlock()
		}
	}
}

func newOwner() (o driver.Owner) {
	_, _ = rand.Read(o[:]) // never fails
	return o
}

func (w *world) claim(from, to time.Time, token int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, span{from, to, token})
}

// quiet lets everything expire and sees that nothing is left in the way.
func (w *world) quiet(t testing.TB, seed uint64) {
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(longestTTL + maxPlace)
	p := w.process()
	defer p.end()
	// A node that has lost its data learns it when it is asked.
	if g, err := p.Acquire(context.Background(), driver.Request{ID: driver.ID{Key: "another", Owner: newOwner()}, TTL: longestTTL}); err == nil {
		_ = p.Release(context.Background(), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})
	}
	time.Sleep(longestTTL)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r := driver.Request{ID: driver.ID{Key: simulatedKey, Owner: newOwner()}, TTL: longestTTL}
	g, err := p.Acquire(ctx, r)
	if err != nil {
		t.Errorf("simulation: seed %d: when all was over the key could not be had: %v", seed, err)
		return
	}
	w.claim(time.Now(), time.Now().Add(time.Nanosecond), g.Token)
	_ = p.Release(ctx, []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})
}

// granted notes a grant, which a majority must have accepted.
func (w *world) granted(g *driver.Grant) {
	w.count("grants")
	accepted := 0
	for _, m := range w.nodes {
		m.mu.Lock()
		if m.saw[acceptance{g.Owner, g.Token}] {
			accepted++
		}
		m.mu.Unlock()
	}
	if 2*accepted <= len(w.nodes) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.alone = append(w.alone, g.Token)
	}
}

// verify checks that claims are disjoint, that tokens rise in their order, and that majorities
// have accepted them.
func (w *world) verify(t testing.TB, seed uint64) {
	overlaps, regressions := judge(w.claims)
	for _, token := range w.alone {
		regressions = append(regressions, fmt.Sprintf("token %d was granted, which no majority had accepted", token))
	}
	if faults := slices.Concat(overlaps, regressions); len(faults) > 0 {
		t.Errorf("simulation: seed %d: %s", seed, faults[0])
	}
}

// judge names those of one key's spans that overlap, and those whose tokens do not rise.
func judge(all []span) (overlaps, regressions []string) {
	all = slices.DeleteFunc(all, func(s span) bool { return !s.to.After(s.from) })
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.from.Before(a.to) {
			overlaps = append(overlaps, fmt.Sprintf("two held the key at once, for %v (tokens %d and %d)", a.to.Sub(b.from), a.token, b.token))
		}
		if b.token <= a.token {
			regressions = append(regressions, fmt.Sprintf("token %d was granted after token %d", b.token, a.token))
		}
	}
	return overlaps, regressions
}
