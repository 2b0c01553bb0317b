// Package serialtest runs the items of a serial function by processes that are killed, stopped and
// cut off from their stores, and judges what they have written down: whether an item was lost, ran out of
// order, beside another of its key or too soon, or had a second effect without a death that
// explains it. A [Mistake] in the source shows that tests find it. It is for tests of stores of
// queues and of locks; those of one operation are in packages queuetest and drivertest.
//
//	func TestHistory(t *testing.T) {
//		plan := serialtest.Plan{Store: addr, TTL: 2 * time.Second, Takes: 2 * time.Millisecond, Fails: 50}
//		serialtest.Run(t, serialtest.History{Plan: plan, Keys: 20, Each: 100, Locks: locks, Queues: store, Start: startProcess})
//	}
//
// Start starts a process, such as the test's own program once more, which opens the same
// stores and calls [Work] with the plan that it was given.
package serialtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
	"github.com/lockaround/lockaround/decorator/serial/internal/serialcheck"
)

// Plan is what a worker process is to do. As JSON it can be given to another process.
type Plan struct {
	Store   string        // where the stores are; for who opens them
	Name    string        // of the process; set by Run
	File    string        // that it writes into; set by Run
	TTL     time.Duration // of the locks
	Spacing time.Duration // between the starts of a key
	Takes   time.Duration // a run takes, at most
	Fails   int           // one run in so many fails; 0: none
	Stuck   bool          // no run returns before its lease ends
}

// Item is what is queued.
type Item struct{ ID, OrderID string }

const (
	queueName = "refund"
	prefix    = "refund:" // of keys
)

// Function is the serial function of a process, by a plan.
func (p Plan) Function(locks *core.Engine, queues queue.Store, run func(context.Context, Item) error) (*serial.Func[Item], error) {
	return serial.New(locks, core.Policy{Name: queueName, Key: prefix + "{OrderID}", TTL: p.TTL}, queues, run,
		serial.Policy{Spacing: p.Spacing, Attempts: 100, MaxLength: 1 << 20, Backoff: serial.Backoff{Least: 5 * time.Millisecond}, Workers: 32})
}

// Work runs what is queued until ctx ends, as [serial.Func.Work] does, and writes down
// what happens. Its process may be killed at any time.
func Work(ctx context.Context, p Plan, locks *core.Engine, queues queue.Store) error {
	history, err := os.OpenFile(p.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer history.Close() //nolint:errcheck // what was not written shows
	w := &worker{plan: p, history: history}
	f, err := p.Function(locks, unrecorded{queues, w.unrecorded}, w.run)
	if err != nil {
		return err
	}
	return f.Work(ctx)
}

type worker struct {
	plan    Plan
	history *os.File
	leases  sync.Map // of runs that are not known to have been recorded, by held
}

// held names a lease.
type held struct {
	key   string
	token int64
}

func (w *worker) note(e serialcheck.Event) {
	e.Process = w.plan.Name
	line, _ := json.Marshal(e)                 // it has strings and numbers
	_, _ = w.history.Write(append(line, '\n')) // what is not written shows
}

// unrecorded is told of runs whose ends the queue has not recorded, or not yet. Whether the
// lease had ended the lock says, and not the queue.
func (w *worker) unrecorded(h queue.Holder) {
	if lease, ok := w.leases.Load(held{h.Key, h.Token}); ok && errors.Is(lease.(*core.Lease).Err(), core.ErrLost) {
		at := time.Now().UnixNano()
		w.note(serialcheck.Event{From: at - int64(10*w.plan.TTL), At: at, Kind: serialcheck.Lost, Key: strings.TrimPrefix(h.Key, prefix)})
	}
}

// run is the function.
func (w *worker) run(ctx context.Context, i Item) error {
	info, _ := serial.RunFrom(ctx)
	lease, _ := core.LeaseFrom(ctx)
	e := serialcheck.Event{At: info.Started.UnixNano(), Kind: serialcheck.Started, Key: i.OrderID, Seq: info.Sequence, Attempt: info.Attempt, Token: lease.Token()}
	began := e.At
	w.leases.Store(held{prefix + i.OrderID, lease.Token()}, lease)
	w.note(e)
	if w.plan.Stuck {
		<-ctx.Done()
	}
	if w.plan.Takes > 0 {
		time.Sleep(rand.N(w.plan.Takes))
	}
	fails := w.plan.Fails > 0 && rand.IntN(w.plan.Fails) == 0
	if at := time.Now().UnixNano(); !fails && lease.Err() == nil {
		e.At, e.Kind = at, serialcheck.Effect
		w.note(e)
	}
	e.At, e.Kind = time.Now().UnixNano(), serialcheck.Returned
	w.note(e)
	if lease.Err() != nil {
		e.From, e.Kind = began, serialcheck.Lost
		w.note(e)
		return lease.Err()
	}
	if fails {
		return errors.New("the provider is down")
	}
	return nil
}

// unrecorded is a store that tells of ends of runs that it has not recorded.
type unrecorded struct {
	queue.Store
	tell func(queue.Holder)
}

type unrecordedQueue struct {
	queue.Queue
	tell func(queue.Holder)
}

// Open implements queue.Store.
func (u unrecorded) Open(name string, rules queue.Rules) (queue.Queue, error) {
	q, err := u.Store.Open(name, rules)
	if err != nil {
		return nil, fmt.Errorf("open the queue: %w", err)
	}
	return unrecordedQueue{q, u.tell}, nil
}

// End implements queue.Queue.
func (q unrecordedQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	s, err := q.Queue.End(ctx, h, e)
	if err != nil {
		q.tell(h)
	}
	return s, err
}
