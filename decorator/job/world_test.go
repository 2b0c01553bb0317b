package job_test

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/job"
)

// world is the replicas of a job on one store, of which some are killed. It lives in a
// synctest bubble, by virtual time.
type world struct {
	t        *testing.T
	policy   core.Policy
	schedule job.Schedule
	store    driver.Driver
	calls    sync.WaitGroup
	first    time.Time // when the first tick is, by a clock that is right

	mu       sync.Mutex // guards what follows
	rng      *rand.Rand
	replicas []*replica
	ticks    []tick
	running  int
	token    int64 // of the latest run
	count    map[string]int
}

// tick is what became of one.
type tick struct {
	plan      []death
	began     int // runs
	completed int // runs that came to their end
	untold    int // of these: whose replica was killed before the store heard of the end
}

// death is a moment at which a replica is killed.
type death string

const (
	beforeRun death = "killed before its run"
	inRun     death = "killed in the middle of its run"
	untold    death = "killed after its run, before the store heard of it"
	told      death = "killed after its run, when the store had heard of it"
	waiting   death = "killed while it waited"
)

// replica is a process.
type replica struct {
	*job.Runner
	engine  *core.Engine
	session driver.Session
	dead    chan struct{} // closed when it is killed
	late    time.Duration // its clock
	asks    bool          // it is in Run and its run has not begun
	missed  int           // ticks since it died
}

func newWorld(t *testing.T, seed uint64, p core.Policy, s job.Schedule) *world {
	return &world{t: t, policy: p, schedule: s, store: memlock.New(), rng: rand.New(rand.NewPCG(seed, 0)), count: map[string]int{}}
}

// upTo is a random time.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d) + 1)) }

// at is when a tick is, by a clock that is right.
func (w *world) at(n int) time.Time { return w.first.Add(time.Duration(n) * w.schedule.Every) }

// start brings up a replica on a machine whose clock is late by a part of the Skew.
func (w *world) start() *replica {
	d := &roomtest.Captured{Driver: w.store}
	e, err := core.New(d, core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		w.t.Fatal(err)
	}
	r := &replica{engine: e, session: d.Session, dead: make(chan struct{}), late: w.upTo(w.schedule.Skew)}
	r.Runner = job.Must(e, w.policy, func(ctx context.Context) error { return w.run(ctx, r) }, w.schedule)
	return r
}

// kill cuts a replica off from the store for ever: its leases run out there. What it does
// afterwards counts for nothing.
func (w *world) kill(r *replica, d death) {
	_ = r.session.Close(context.Background()) // without this no lease of memlock is released, nor by it
	close(r.dead)
	w.count[string(d)]++
}

func (r *replica) isDead() bool {
	select {
	case <-r.dead:
		return true
	default:
		return false
	}
}

// play lets the ticks pass, each with the deaths that plan gives it.
func (w *world) play(replicas, ticks int, plan func(*rand.Rand) []death) {
	w.first, w.ticks = time.Now().Add(time.Minute), make([]tick, ticks)
	for range replicas {
		w.replicas = append(w.replicas, w.start())
	}
	for n := range ticks {
		time.Sleep(time.Until(w.at(n)) - time.Second)
		w.mu.Lock()
		w.revive()
		w.ticks[n].plan = plan(w.rng)
		for _, r := range w.replicas {
			if !r.isDead() {
				w.calls.Go(func() { w.call(r, n) })
			}
		}
		if w.due(n, waiting) {
			after := time.Second + w.upTo(w.schedule.Skew+w.replicas[0].Policy().Wait)
			w.calls.Go(func() { w.killOneThatWaits(after) })
		}
		w.mu.Unlock()
	}
	w.calls.Wait()
	for _, r := range w.replicas {
		_ = r.engine.Close() // the dead ones complain
	}
}

// revive starts those again that have been dead for long enough: three of five are alive.
func (w *world) revive() {
	down := 0
	for i, r := range w.replicas {
		if !r.isDead() {
			continue
		}
		if r.missed++; down == 2 || w.rng.IntN(3) < r.missed {
			_ = r.engine.Close() // it complains; the store does not hear of it
			w.replicas[i] = w.start()
			continue
		}
		down++
	}
}

// due takes a death out of those that a tick is to bring.
func (w *world) due(n int, d death) bool {
	plan := w.ticks[n].plan
	i := slices.Index(plan, d)
	if i < 0 {
		return false
	}
	w.ticks[n].plan = slices.Delete(plan, i, i+1)
	return true
}

func (w *world) killOneThatWaits(after time.Duration) {
	time.Sleep(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.replicas {
		if r.asks && !r.isDead() {
			w.kill(r, waiting)
			return
		}
	}
}

type tickNumber struct{}

// call is what a replica's scheduler does at a tick.
func (w *world) call(r *replica, n int) {
	time.Sleep(time.Until(w.at(n).Add(r.late)))
	w.set(&r.asks, true)
	defer w.set(&r.asks, false)
	err := r.Run(context.WithValue(w.t.Context(), tickNumber{}, n))

	w.mu.Lock()
	defer w.mu.Unlock()
	if r.isDead() {
		return
	}
	outcome := r.Status().Outcome
	w.count["outcome "+outcome.String()]++
	switch {
	case err != nil:
		w.t.Errorf("tick %d: %v", n, err)
	case outcome == job.Skipped:
	case w.due(n, told):
		w.kill(r, told)
	}
}

func (w *world) set(b *bool, to bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*b = to
}

// run is the job. It ends its goroutine where its replica dies.
func (w *world) run(ctx context.Context, r *replica) error {
	n := ctx.Value(tickNumber{}).(int)
	lasts, dies := w.begin(ctx, r, n)
	defer w.end()
	select {
	case <-time.After(lasts):
	case <-r.dead:
		runtime.Goexit()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	tk := &w.ticks[n]
	if dies {
		w.kill(r, inRun)
		runtime.Goexit()
	}
	if ctx.Err() != nil {
		w.t.Errorf("tick %d: a run's context ended: %v", n, context.Cause(ctx))
	}
	if !time.Now().Before(w.at(n + 1)) {
		w.t.Errorf("tick %d was run when the next one had come", n)
	}
	tk.completed++
	if w.due(n, untold) {
		tk.untold++
		w.kill(r, untold)
		runtime.Goexit()
	}
	return nil
}

// begin says how long a run lasts, and whether its replica dies then.
func (w *world) begin(ctx context.Context, r *replica, n int) (lasts time.Duration, dies bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.asks = false
	tk := &w.ticks[n]
	tk.began++
	if w.running++; w.running > 1 {
		w.t.Errorf("tick %d: %d runs at a time", n, w.running)
	}
	lease, _ := core.LeaseFrom(ctx)
	if lease.Token() <= w.token {
		w.t.Errorf("tick %d: token %d after %d", n, lease.Token(), w.token)
	}
	w.token = lease.Token()
	lasts = w.upTo(w.schedule.MaxRun - time.Second)
	if w.due(n, inRun) {
		lasts /= time.Duration(tk.began) // the earlier, the more deaths fit
		dies = tk.began == 1 || w.heard(n, time.Now().Add(lasts))
		return lasts, dies
	}
	if w.due(n, beforeRun) {
		w.kill(r, beforeRun)
	}
	return lasts, false
}

// heard reports whether every replica still waits when the lease of one that dies then has
// run out: as far as a second death in one tick is caught up for certain.
func (w *world) heard(n int, dies time.Time) bool {
	p := w.replicas[0].Policy()
	return dies.Add(p.TTL).Before(w.at(n).Add(p.Wait))
}

func (w *world) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
}

// log tells what happened.
func (w *world) log() {
	w.t.Logf("%d ticks", len(w.ticks))
	for _, what := range slices.Sorted(maps.Keys(w.count)) {
		w.t.Logf("%6d %s", w.count[what], what)
	}
}
