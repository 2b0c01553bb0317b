package redlock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

const (
	simulationSchedules = "LOCKAROUND_REDLOCK_SCHEDULES" // how many; the default is defaultSchedules
	defaultSchedules    = 200
)

// TestSimulation runs sessions of the driver in virtual time over modelled nodes and a
// network that loses, delays and reorders, with processes that crash at any moment and
// nodes that lose their data, each schedule from a seed of its own.
//
// In odd schedules nodes have no clocks and never forget, so that tokens are proven to
// rise by counting alone. In even ones nodes lose their data and stay out for the
// largest TTL, so that the rule of the delayed restart is proven to be enough.
func TestSimulation(t *testing.T) {
	n := schedulesToRun(t)
	total := make(map[string]int)
	for seed := range uint64(n) {
		w := world{forgetful: seed%2 == 0, delayed: true}
		for what, k := range w.simulate(t, seed) {
			total[what] += k
		}
		if t.Failed() {
			return
		}
	}
	t.Log(total)
	for _, what := range []string{"grants", "waits", "crashes", "losses of data", "partitions", "renewals", "held", "lost replies"} {
		if n >= 100 && total[what] == 0 {
			t.Errorf("no schedule had any %s", what)
		}
	}
	t.Attr("figure-5", fmt.Sprintf("%d seeds, %d grants: 0 violations", n, total["grants"]))
}

func schedulesToRun(t *testing.T) int {
	text := os.Getenv(simulationSchedules)
	if text == "" {
		return defaultSchedules
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", simulationSchedules, err)
	}
	return n
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
	w.rng = mathrand.New(mathrand.NewPCG(seed, 1)) //nolint:gosec // a schedule, no secret
	w.counts = make(map[string]int)
	bubble := t
	if f, ok := t.(*finding); ok {
		bubble = f.TB
	}
	synctest.Test(bubble.(*testing.T), func(*testing.T) {
		size := 3 + 2*w.draw(2)
		for i := range size {
			m := newModel(fmt.Sprint("node ", i))
			m.logic = !w.forgetful
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

// process is a session whose process may crash.
type process struct {
	driver.Session
	w      *world
	cut    uint64 // nodes that it cannot reach, a bit each; guarded by w.mu
	cancel context.CancelFunc
	dead   context.Context
}

func (w *world) process() *process {
	p := &process{w: w}
	p.dead, p.cancel = context.WithCancel(context.Background())
	var opts []Option
	if w.delayed && w.forgetful {
		opts = append(opts, WithRestartDelay(longestTTL))
	}
	d := newDriver(make([]string, len(w.nodes)), func(time.Duration) ([]wire, error) {
		var ws []wire
		for i, m := range w.nodes {
			ws = append(ws, faultyWire{m, p, i})
		}
		return ws, nil
	}, opts)
	d.jitter = func() float64 { return float64(w.draw(1<<20)) / (1 << 20) }
	p.Session, _ = d.Open(driver.Config{Sink: deafSink{}, StoreTimeout: 400 * time.Millisecond})
	return p
}

// faultyWire is a network that loses, delays and reorders.
type faultyWire struct {
	*model
	p    *process
	node int
}

func (f faultyWire) run(ctx context.Context, cmds []command) []reply {
	w := f.p.w
	lost := func() []reply {
		select {
		case <-ctx.Done():
		case <-f.p.dead.Done():
		}
		rs := make([]reply, len(cmds))
		for i := range rs {
			rs[i].err = &kit.SilenceError{}
		}
		return rs
	}
	pace := func() time.Duration {
		if w.chance(5) {
			return w.span(600 * time.Millisecond)
		}
		return w.span(8 * time.Millisecond)
	}
	w.mu.Lock()
	calm, down := w.calm, w.down[f.node] || f.p.cut>>f.node&1 == 1
	w.mu.Unlock()
	if calm {
		return f.model.run(ctx, cmds)
	}
	if down || f.p.dead.Err() != nil || w.chance(3) {
		return lost()
	}
	// What is on its way is executed, whatever has become of its sender.
	done := make(chan []reply, 1)
	first, second := pace(), pace()
	drop := w.chance(3)
	go func() {
		time.Sleep(first)
		rs := f.model.run(ctx, cmds)
		time.Sleep(second)
		if drop {
			w.count("lost replies")
			return
		}
		done <- rs
	}()
	select {
	case rs := <-done:
		if f.p.dead.Err() == nil {
			return rs
		}
	case <-ctx.Done():
	case <-f.p.dead.Done():
	}
	return lost()
}

func (f faultyWire) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	return f.model.listen(ctx, channel, up, func(payload string) {
		if !f.p.w.chance(10) && f.p.dead.Err() == nil {
			message(payload)
		}
	})
}

type deafSink struct{}

func (deafSink) Waiting(driver.ID)         {}
func (deafSink) Contended(driver.ID, bool) {}
func (deafSink) Lost(driver.ID, error)     {}

func newOwner() (o driver.Owner) {
	_, _ = rand.Read(o[:]) // never fails
	return o
}

// caller takes the key a few times.
func (w *world) caller() {
	p := w.process()
	defer func() { p.end() }()
	for range 3 + w.draw(6) {
		time.Sleep(w.span(300 * time.Millisecond))
		r := driver.Request{
			ID: driver.ID{Key: simulatedKey}, Wait: w.chance(60),
			TTL: []time.Duration{200 * time.Millisecond, time.Second, longestTTL}[w.draw(3)],
		}
		w.mu.Lock()
		binary.LittleEndian.PutUint64(r.Owner[:], w.rng.Uint64())
		binary.LittleEndian.PutUint64(r.Owner[8:], w.rng.Uint64())
		w.mu.Unlock()
		if r.Wait {
			w.count("waits")
		}
		if w.chance(8) { // in the middle of it, or while it holds
			w.count("crashes")
			crash := time.AfterFunc(w.span(100*time.Millisecond), p.cancel)
			w.turn(p, r)
			crash.Stop()
			p.cancel()
			p.end()
			p = w.process()
			continue
		}
		w.turn(p, r)
	}
}

// turn is one acquisition, what is done with it, and its end.
func (w *world) turn(p *process, r driver.Request) {
	ctx, cancel := context.WithTimeout(p.dead, 100*time.Millisecond+w.span(8*time.Second))
	defer cancel()
	g, err := p.Acquire(ctx, r)
	from := time.Now()
	if held := new(driver.HeldError); errors.As(err, &held) {
		w.count("held")
	}
	if err != nil {
		return
	}
	w.count("grants")
	deadline := g.Deadline
	for w.chance(50) {
		time.Sleep(w.span(r.TTL / 2))
		if w.chance(40) {
			w.count("partitions")
			p.partition(uint64(w.draw(1 << len(w.nodes))))
			defer p.partition(0)
		}
		if !time.Now().Before(deadline) {
			break
		}
		out := p.Renew(ctx, []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: r.TTL}})[0]
		if errors.Is(out.Err, driver.ErrNotHeld) {
			w.claim(from, earlier(deadline, time.Now()), g.Token)
			return
		}
		if out.Err == nil {
			w.count("renewals")
			deadline = driver.Later(deadline, out.Deadline)
		}
	}
	if w.chance(25) { // it forgets to release
		w.claim(from, deadline, g.Token)
		return
	}
	time.Sleep(w.span(50 * time.Millisecond))
	w.claim(from, earlier(deadline, time.Now()), g.Token)
	_ = p.Release(ctx, []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: deadline}})
}

// partition parts the process from nodes.
func (p *process) partition(nodes uint64) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.cut = nodes
}

func (w *world) claim(from, to time.Time, token int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, span{from, to, token})
}

// end closes the session; that of a crashed process has nobody to talk to.
func (p *process) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = p.Close(ctx) // what it could not clean up expires
	p.cancel()
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

// verify checks that claims are disjoint and that tokens rise in their order.
func (w *world) verify(t testing.TB, seed uint64) {
	all := slices.DeleteFunc(w.claims, func(c span) bool { return !c.to.After(c.from) })
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.from.Before(a.to) {
			t.Errorf("simulation: seed %d: two held the key at once, for %v (tokens %d and %d)", seed, a.to.Sub(b.from), a.token, b.token)
			return
		}
		if b.token <= a.token {
			t.Errorf("simulation: seed %d: token %d was granted after token %d", seed, b.token, a.token)
			return
		}
	}
}
