package serialtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
	"github.com/lockaround/lockaround/decorator/serial/internal/serialcheck"
)

// History is what [Run] runs.
type History struct {
	Plan       Plan
	Keys, Each int          // how many items, over how many keys
	Locks      *core.Engine // of the process that enqueues, which takes no lock
	Queues     queue.Store

	// Start starts a process that calls Work. It ends with the test at the latest.
	Start func(testing.TB, Plan) Process

	// Faults happen beside the workers' own: they are killed, and stopped for longer than
	// their leases. Each returns when it is over.
	Faults []Fault
}

// Fault is something that breaks.
type Fault struct {
	Name  string // with what it happens to, in the plural
	Cause func()
}

// Process is a worker process. Its methods are called one at a time.
type Process interface {
	Kill() // as kill -9 does; it returns when the process has gone
	Stop() error
	Cont() error
}

const (
	processes = 4
	producers = 16
	patience  = 5 * time.Minute // for something to end
)

// Run enqueues all items, breaks what it can while they run, and fails the test for each thing
// that must not be. It ends when no item is left, or when none has ended for five minutes.
func Run(t *testing.T, h History) {
	t.Helper()
	began := time.Now()
	r := h.run(t)
	closest := ""
	if h.Plan.Spacing > 0 {
		closest = fmt.Sprintf("; the closest starts are %v apart, and the spacing is %v", r.Closest, h.Plan.Spacing)
	}
	t.Logf("%d items of %d keys in %v: %d lost, out of order, side by side or too close; %d runs, %d effects, of which %d are second ones after a death or a lost lease, %d runs begun after a pause%s",
		r.Accepted, h.Keys, time.Since(began).Round(time.Second), len(r.Faults), r.Runs, r.Effects, r.Duplicates, r.Stale, closest)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if want := h.Keys * h.Each; r.Accepted != want {
		t.Errorf("%d items were accepted; want %d", r.Accepted, want)
	}
}

// late is how long a worker may take to write down that it had lost a lease, after others have ended all
// items: it hears so from a store that may have nothing to say before its calls time out.
const late = 30 * time.Second

func (h *History) run(t *testing.T) *serialcheck.Report {
	t.Helper()
	var all []serialcheck.Event
	f, err := h.Plan.Function(h.Locks, h.Queues, func(context.Context, Item) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	note := func(e serialcheck.Event) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var producing sync.WaitGroup
	for n := range producers {
		producing.Go(func() { h.produce(ctx, f, n, note) })
	}
	defer producing.Wait()
	defer cancel()
	appended := make(chan struct{})
	go func() { producing.Wait(); close(appended) }()

	dir := t.TempDir()
	h.breakAndWait(t, dir, note, appended)
	mu.Lock()
	defer mu.Unlock()
	for ended := time.Now(); ; time.Sleep(time.Second / 2) {
		r := serialcheck.Check(append(slices.Clone(all), written(t, dir)...), h.Plan.Spacing)
		if r.Err() == nil || time.Since(ended) > late {
			return r
		}
	}
}

// written is what the workers have written down so far.
func written(t *testing.T, dir string) (all []serialcheck.Event) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		events, err := serialcheck.Read(file)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		all = append(all, events...)
	}
	return all
}

// produce enqueues the items of each sixteenth key, from the n-th on. What was not answered is repeated.
func (h *History) produce(ctx context.Context, f *serial.Func[Item], n int, note func(serialcheck.Event)) {
	for i := range h.Each {
		for key := n; key < h.Keys; key += producers {
			order, id := fmt.Sprint("A", key), fmt.Sprint(i)
			for ctx.Err() == nil {
				place, err := f.Enqueue(ctx, Item{ID: id, OrderID: order}, serial.ItemID(id))
				if err == nil {
					note(serialcheck.Event{At: time.Now().UnixNano(), Kind: serialcheck.Accepted, Key: order, Seq: place.Sequence})
					break
				}
			}
		}
	}
}

// crew are the worker processes.
type crew struct {
	h     *History
	t     *testing.T
	dir   string
	note  func(serialcheck.Event)
	names [processes]string
	all   [processes]Process
	begun int
}

func (c *crew) start(i int) {
	c.t.Helper()
	plan := c.h.Plan
	plan.Name = fmt.Sprint("w", i, ".", c.begun)
	plan.File = filepath.Join(c.dir, plan.Name)
	c.names[i], c.all[i] = plan.Name, c.h.Start(c.t, plan)
	c.begun++
}

func (c *crew) kill(i int) {
	from := time.Now().UnixNano()
	c.all[i].Kill()
	c.note(serialcheck.Event{From: from, At: time.Now().UnixNano(), Kind: serialcheck.Killed, Process: c.names[i]})
	c.start(i)
}

func (c *crew) pause(i int) {
	from := time.Now().UnixNano()
	if err := c.all[i].Stop(); err != nil {
		c.t.Errorf("stop a worker: %v", err)
	}
	time.Sleep(c.h.Plan.TTL + c.h.Plan.TTL/4)
	if err := c.all[i].Cont(); err != nil {
		c.t.Errorf("let a worker go on: %v", err)
	}
	c.note(serialcheck.Event{From: from, At: time.Now().UnixNano(), Kind: serialcheck.Paused, Process: c.names[i]})
}

// breakAndWait has the processes work until nothing is left, and breaks one thing after the other.
func (h *History) breakAndWait(t *testing.T, dir string, note func(serialcheck.Event), appended <-chan struct{}) {
	t.Helper()
	q, err := h.Queues.Open(queueName, queue.Rules{Attempts: 1, MaxLength: 1, KeepFor: time.Hour, KeepCount: 1}) // to look at
	if err != nil {
		t.Fatal(err)
	}
	c := &crew{h: h, t: t, dir: dir, note: note}
	for i := range processes {
		c.start(i)
	}
	kill := Fault{"workers killed", func() { c.kill(rand.IntN(processes)) }}
	faults := append([]Fault{kill, kill, {"workers stopped", func() { c.pause(rand.IntN(processes)) }}}, h.Faults...)
	happened := make(map[string]int)
	length, moved := -1, time.Now()
	for producing := true; ; {
		select {
		case <-appended:
			producing = false
		default:
		}
		s, err := q.Stats(t.Context())
		switch {
		case err == nil && s.Length == 0 && !producing:
			var told []string
			for _, f := range faults[1:] {
				told = append(told, fmt.Sprintf("%d times %s", happened[f.Name], f.Name))
			}
			t.Log(strings.Join(told, ", "))
			return
		case err == nil && s.Length != length:
			length, moved = s.Length, time.Now()
		case time.Since(moved) > patience:
			t.Fatalf("%d items are left, and none has ended for %v; %v", length, patience, err)
		}
		time.Sleep(200*time.Millisecond + rand.N(300*time.Millisecond))
		f := faults[rand.IntN(len(faults))]
		f.Cause()
		happened[f.Name]++
	}
}
