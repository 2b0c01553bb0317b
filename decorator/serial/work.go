package serial

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
	"github.com/lockaround/lockaround/decorator/queue"
)

const (
	// lookEvery is how often a worker looks at a part of the store, whatever it hears.
	lookEvery = 5 * time.Second
	// leastPause and mostPause are between attempts at a store that does not answer.
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	// callTimeout bounds each attempt.
	callTimeout = 3 * time.Second
	// mostClaimed is how many keys one claim names at most.
	mostClaimed = 64
	// overstay is how long Work waits for runs whose leases have ended.
	overstay = time.Second
	// patience is how long a key may wait for its lock as one of Workers.
	patience = 50 * time.Millisecond
)

// Work runs what is queued, in this process, until ctx ends. Then it begins nothing more, waits
// for the runs that it has begun and for the store to confirm that their locks are free, and returns ctx's error. Any number of processes may work on one queue.
//
// It returns before that with a [core.ErrClosed] when the engine is closed or shutting down, and with a
// [core.ErrPolicy] if Work runs already. A store that does not answer, of the queue or of the locks, is asked
// again. An [ErrStuck] is in its error if runs have not returned that have lost their
// leases. While a run keeps its lease, Work waits for it.
//
// An idle worker asks the store once in 5 s, and hears of new items by a push in between.
func (f *Func[In]) Work(ctx context.Context) error {
	if ctx == nil {
		return f.misused("the context is nil; pass context.Background()")
	}
	f.mu.Lock()
	busy := f.working
	f.working = true
	f.mu.Unlock()
	if busy {
		return f.misused("Work runs already in this process; call it once for each Func")
	}
	defer func() {
		f.mu.Lock()
		f.working = false
		f.mu.Unlock()
	}()
	return newWorker(ctx, f).work()
}

func (f *Func[In]) misused(why string) error {
	return &core.Error{Op: "work", Policy: f.guard.Name(), Kind: core.ErrPolicy, Detail: why}
}

// worker is one Work.
type worker[In any] struct {
	*Func[In]
	queue     guardedQueue
	name      string          // of the process, to the store
	ctx       context.Context // of Work; ended when nothing more is to be begun
	stop      context.CancelCauseFunc
	knew      chan struct{} // something has changed that the next look depends on
	listening sync.WaitGroup
	outage    room.Outage // of the stores

	mu      sync.Mutex
	looks   []time.Time // by shard: when to look there
	claimed map[*claimedKey]bool
	parting map[*claimedKey]bool // and those whose leases are being released
	waiting int                  // of them, those that do not count as one of Workers
	unlucky int                  // failures of the locks' store in a row
	later   time.Time            // nothing is claimed before, for a store does not answer
}

// claimedKey is a key that this process has claimed.
type claimedKey struct {
	key     string
	shard   int
	waits   bool          // for a lock that somebody else has, and counts no more as one of Workers
	lease   *core.Lease   // nil: not granted
	touched time.Time     // when the claim was made or prolonged last
	done    chan struct{} // closed when its run has returned
	parted  chan struct{} // closed when its lease has been released, too
}

func newWorker[In any](ctx context.Context, f *Func[In]) *worker[In] {
	w := &worker[In]{
		Func: f, queue: guardedQueue{f.queue}, name: rand.Text(), knew: make(chan struct{}, 1),
		looks: make([]time.Time, f.queue.Shards()), claimed: make(map[*claimedKey]bool), parting: make(map[*claimedKey]bool),
	}
	w.ctx, w.stop = context.WithCancelCause(ctx)
	return w
}

// work is the body of Work.
func (w *worker[In]) work() error {
	w.listening.Go(w.listen)
	for w.begins() {
		pause := w.turn(time.Now())
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.knew:
		case <-w.engine.Closing():
		case <-w.ctx.Done():
		}
		timer.Stop()
	}
	w.giveBack()
	err := context.Cause(w.ctx)
	if stuck := w.drain(); stuck > 0 {
		err = errors.Join(err, w.failure("work", ErrStuck, fmt.Sprintf("%d of them have lost their leases and go on", stuck), nil))
	}
	w.confirm()
	w.stop(nil)
	w.listening.Wait()
	return err
}

// begins reports whether more is to be begun.
func (w *worker[In]) begins() bool {
	select {
	case <-w.engine.Closing():
		w.stop(&core.Error{Op: "work", Policy: w.guard.Name(), Kind: core.ErrClosed})
	default:
	}
	return w.ctx.Err() == nil
}

// turn claims what is due, and returns how long there is nothing to do.
func (w *worker[In]) turn(now time.Time) (pause time.Duration) {
	for shard := range w.looks {
		w.mu.Lock()
		if w.later.After(now) {
			w.mu.Unlock()
			break
		}
		free := w.policy.Workers - (len(w.claimed) - w.waiting)
		due := !w.looks[shard].After(now)
		keep, overdue := w.stale(shard, now)
		w.mu.Unlock()
		if due = due && free > 0; due || overdue {
			w.claim(shard, free, due, keep)
		}
		if w.ctx.Err() != nil {
			return 0
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := now.Add(w.look)
	if len(w.claimed)-w.waiting < w.policy.Workers {
		for _, at := range w.looks {
			if at.Before(next) {
				next = at
			}
		}
	}
	for h := range w.claimed {
		if at := h.touched.Add(w.lock.TTL / 3); at.Before(next) {
			next = at
		}
	}
	if next.Before(w.later) {
		next = w.later
	}
	return max(time.Until(next), 0)
}

// stale returns the claims of a shard that are to be prolonged, and whether one has to be now. w.mu is
// held. A run that has lost its lease is left to others.
func (w *worker[In]) stale(shard int, now time.Time) (keep []string, overdue bool) {
	for h := range w.claimed {
		if h.shard != shard || now.Sub(h.touched) < w.lock.TTL/6 {
			continue
		}
		overdue = overdue || now.Sub(h.touched) >= w.lock.TTL/3
		if h.lease != nil && h.lease.Err() != nil {
			h.touched = now
			continue
		}
		keep = append(keep, h.key)
	}
	return keep, overdue
}

// claim asks a shard for keys, and prolongs the claims on others.
func (w *worker[In]) claim(shard, free int, due bool, keep []string) {
	r := queue.ClaimRequest{Shard: shard, Worker: w.name, For: w.lock.TTL, Keep: keep}
	if due {
		r.Max = min(free, mostClaimed)
	}
	asked := time.Now()
	w.mu.Lock()
	if due {
		// What is heard while the store is asked brings it forward.
		w.looks[shard] = asked.Add(w.look * time.Duration(len(w.looks)))
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(w.ctx, callTimeout)
	defer cancel()
	c, err := w.queue.Claim(ctx, r)
	if err == nil {
		w.recovered()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.trouble(ctx, "claim", err)
		w.looks[shard] = w.later
		return
	}
	w.unlucky = 0
	for h := range w.claimed {
		if slices.Contains(keep, h.key) && h.touched.Before(asked) {
			h.touched = asked
		}
	}
	for _, key := range c.Keys {
		// Whoever serves the key already is through with it and about to let go, or has
		// lost its lease and goes on. The lock keeps the two apart.
		w.take(&claimedKey{key: key, shard: shard, touched: asked, done: make(chan struct{}), parted: make(chan struct{})})
	}
	if due && c.Next >= 0 {
		w.lookBy(shard, time.Now().Add(c.Next))
	}
}

// take begins to serve a key that was claimed. w.mu is held.
func (w *worker[In]) take(h *claimedKey) {
	w.claimed[h], w.parting[h] = true, true
	go func() {
		defer w.parted(h)
		lease, err := w.lease(h)
		if err == nil {
			// By now the key is none of Workers any more. Whether the lease had ended before, the
			// records of the runs show; a release without an answer goes on in the background.
			defer func() { _ = lease.Release(context.WithoutCancel(w.ctx)) }()
		}
		defer close(h.done)
		w.serve(h, lease)
	}()
}

// parted notes that nothing is left to do for a key.
func (w *worker[In]) parted(h *claimedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.parting, h)
	close(h.parted)
}

// confirm waits until the store has answered to the releases of all runs that have returned, or its
// time is over.
func (w *worker[In]) confirm() {
	w.mu.Lock()
	all := slices.Collect(maps.Keys(w.parting))
	w.mu.Unlock()
	for _, h := range all {
		select {
		case <-h.done:
			<-h.parted
		default: // it is stuck
		}
	}
}

// lookBy sees to it that a shard is looked at by then. w.mu is held.
func (w *worker[In]) lookBy(shard int, at time.Time) {
	if at.Before(w.looks[shard]) {
		w.looks[shard] = at
		w.wake()
	}
}

// listen hears of keys that get due.
func (w *worker[In]) listen() {
	for failures := 0; w.ctx.Err() == nil; {
		heard := func() {
			failures = 0
			w.mu.Lock()
			defer w.mu.Unlock()
			for shard := range w.looks {
				w.lookBy(shard, time.Now()) // what was told before was not heard
			}
		}
		err := w.queue.Listen(w.ctx, heard, func(shard int, in time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if shard >= 0 && shard < len(w.looks) {
				w.lookBy(shard, time.Now().Add(in))
			}
		})
		if w.ctx.Err() != nil {
			return
		}
		failures++
		w.complain(w.ctx, "listen", err)
		_ = room.Pause(w.ctx, room.Doubled(leastPause, mostPause, failures))
	}
}

// trouble notes that a store does not answer: nothing is claimed for a while. w.mu is held.
func (w *worker[In]) trouble(ctx context.Context, op string, err error) {
	if w.ctx.Err() != nil {
		return
	}
	w.unlucky++
	w.later = time.Now().Add(room.Doubled(leastPause, mostPause, w.unlucky))
	w.complain(ctx, op, err)
}

// recovered says that the stores answer again, if the log says that they do not.
func (w *worker[In]) recovered() {
	if w.outage.Answered() {
		w.engine.Logger().Info("lockaround: the stores answer again, and queued items run", "lock.name", w.guard.Name())
	}
}

// complain says once, until the stores answer again, why they do not.
func (w *worker[In]) complain(ctx context.Context, op string, err error) {
	if w.outage.Failed() {
		w.engine.Logger().ErrorContext(ctx, "lockaround: a store does not answer, so that queued items wait", "lock.name", w.guard.Name(), "op", op, "error", err)
	}
}

// giveBack gives up the claims on keys that nothing was begun of, for other workers.
func (w *worker[In]) giveBack() {
	back := make([][]string, len(w.looks))
	w.mu.Lock()
	for h := range w.claimed {
		if h.lease == nil {
			back[h.shard] = append(back[h.shard], h.key)
		}
	}
	w.mu.Unlock()
	for shard, keys := range back {
		if keys != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), callTimeout)
			// If it fails they end by themselves.
			_, _ = w.queue.Claim(ctx, queue.ClaimRequest{Shard: shard, Worker: w.name, For: w.lock.TTL, Return: keys})
			cancel()
		}
	}
}

// drain waits for the runs that were begun, while they keep their leases, and says how many
// go on without.
func (w *worker[In]) drain() (stuck int) {
	w.mu.Lock()
	all := make([]*claimedKey, 0, len(w.claimed))
	for h := range w.claimed {
		all = append(all, h)
	}
	w.mu.Unlock()
	for _, h := range all {
		if !w.outlast(h) {
			stuck++
		}
	}
	return stuck
}

// outlast waits for a claimed key, and reports whether its run has returned.
func (w *worker[In]) outlast(h *claimedKey) bool {
	w.mu.Lock()
	lease := h.lease
	w.mu.Unlock()
	if lease == nil {
		<-h.done // w.ctx ends its waiting for the lock
		return true
	}
	select {
	case <-h.done:
		return true
	case <-lease.Done():
	}
	late := time.NewTimer(overstay)
	defer late.Stop()
	select {
	case <-h.done:
		return true
	case <-late.C:
		return false
	}
}

// guardedQueue is a queue whose panics are errors, for goroutines that are not of a caller.
type guardedQueue struct{ queue.Queue }

func (q guardedQueue) Claim(ctx context.Context, r queue.ClaimRequest) (c queue.Claims, err error) {
	defer room.Rescue(&err)
	return q.Queue.Claim(ctx, r)
}

func (q guardedQueue) Begin(ctx context.Context, h queue.Holder) (s queue.Step, err error) {
	defer room.Rescue(&err)
	return q.Queue.Begin(ctx, h)
}

func (q guardedQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (s queue.Step, err error) {
	defer room.Rescue(&err)
	return q.Queue.End(ctx, h, e)
}

func (q guardedQueue) Stats(ctx context.Context) (s queue.Stats, err error) {
	defer room.Rescue(&err)
	return q.Queue.Stats(ctx)
}

func (q guardedQueue) Listen(ctx context.Context, up func(), due func(int, time.Duration)) (err error) {
	defer room.Rescue(&err)
	return q.Queue.Listen(ctx, up, due)
}
