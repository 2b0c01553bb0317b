package serial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
	"github.com/lockaround/lockaround/decorator/queue"
)

var (
	// ErrGiveUp says that no further attempt can do better. A function under [Must] returns it,
	// or an error that wraps it, and its item is dead then.
	ErrGiveUp = errors.New("no further attempt")
	// ErrStuck says that Work has ended, and that runs which it has begun have lost their leases
	// and not returned.
	ErrStuck = errors.New("runs have not returned")
)

// RunInfo is what a function under [Must] can know of its run.
type RunInfo struct {
	ID       string // Place.ID: the same over all attempts, and for no other item of the queue
	Sequence int64  // rises within the key
	Attempt  int    // from 1
	Last     bool   // a failure of this attempt is the item's death

	// Started is when the run started, which the spacing counts from: just before the function
	// was called. A machine that is busy may run its first line later.
	Started time.Time
}

type runInfoKey struct{}

// RunFrom returns what ctx, or the context that it is made of, says of the run that it was given to.
func RunFrom(ctx context.Context) (RunInfo, bool) {
	r, ok := ctx.Value(runInfoKey{}).(RunInfo)
	return r, ok
}

// leastGrace is how long after its Begin a run may start, see queue.Holder; a store that
// takes longer to answer gets more.
const leastGrace = 250 * time.Millisecond

// serve runs the items of a claimed key, whose lock was taken, while they are due and nobody else
// waits for it.
func (w *worker[In]) serve(h *claimedKey, lease *core.Lease) {
	defer w.letGo(h)
	if h.lease == nil {
		return // there is none, or Work has ended, and gives up the claim
	}
	inside, cancel := context.WithCancel(lease.Context(context.WithoutCancel(w.ctx)))
	defer cancel()
	holder := queue.Holder{Key: h.key, Token: lease.Token(), Worker: w.name, For: w.lock.TTL}
	begin := func() (queue.Step, time.Time, error) {
		return w.ask(h, lease, "begin", func(ctx context.Context) (queue.Step, error) {
			holder.Grace = time.Duration(w.grace.Load())
			return w.queue.Begin(ctx, holder)
		})
	}
	step, asked, err := begin()
	for err == nil {
		w.signals.died(inside, step.Died)
		if step.Item == nil {
			w.due(h, step)
			return
		}
		if w.tooLate(asked) {
			step, asked, err = begin()
			continue
		}
		if lease.Err() != nil {
			return // the item is somebody else's, who will find it begun
		}
		step, asked, err = w.once(inside, h, lease, holder, *step.Item, asked)
	}
}

// lease takes the lock of a key. While somebody else has it, the key does not keep others from
// being one of Workers.
func (w *worker[In]) lease(h *claimedKey) (*core.Lease, error) {
	p := w.lock
	p.Key = h.key
	if p.MaxHold == 0 {
		p.MaxHold = core.Forever // whatever the engine's default is for calls
	}
	waits := time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.claimed[h] && h.lease == nil && w.waiting < w.policy.Workers {
			h.waits = true
			w.waiting++
			w.wake()
		}
	})
	defer waits.Stop()
	lease, err := w.engine.Acquire(w.ctx, p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.waits {
		h.waits = false
		w.waiting--
	}
	if w.ctx.Err() == nil {
		h.lease = lease
	}
	switch {
	case err == nil, w.ctx.Err() != nil:
	case errors.Is(err, core.ErrUnavailable), room.IsBusy(err):
		w.trouble(w.ctx, "acquire", err) // the claim ends by itself
	default:
		w.stop(err) // the engine is closed, or Work's context has the lock already
	}
	return lease, err
}

// letGo ends what serve began. A claim of which nothing has come is left to giveBack.
func (w *worker[In]) letGo(h *claimedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.lease == nil && w.ctx.Err() != nil {
		return
	}
	delete(w.claimed, h)
	w.wake()
}

// wake lets the next turn come at once. w.mu is held.
func (w *worker[In]) wake() {
	select {
	case w.knew <- struct{}{}:
	default:
	}
}

// due sees to it that a key is looked at when its next item is due.
func (w *worker[In]) due(h *claimedKey, s queue.Step) {
	if s.Left == 0 || s.Parked {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookBy(h.shard, time.Now().Add(s.In))
}

// tooLate reports whether the answer of a Begin took so long that the run might start too
// close to the next one, if this process died.
func (w *worker[In]) tooLate(asked time.Time) bool {
	grace := time.Duration(w.grace.Load())
	if w.policy.Spacing == 0 || time.Since(asked) <= grace {
		return false
	}
	w.grace.CompareAndSwap(int64(grace), int64(min(2*grace, w.lock.TTL)))
	return grace < w.lock.TTL // beyond it the lease is over
}

// ask asks the queue until it answers, or its answer is of no use any more; asked is when it
// was asked for the answer. The operations may be repeated.
func (w *worker[In]) ask(h *claimedKey, lease *core.Lease, op string, call func(context.Context) (queue.Step, error)) (s queue.Step, asked time.Time, err error) {
	first := time.Now()
	for failures := 1; ; failures++ {
		asked = time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), callTimeout)
		s, err = call(ctx)
		cancel()
		switch {
		case err == nil:
			w.recovered()
			w.mu.Lock()
			h.touched, w.unlucky = asked, 0
			w.mu.Unlock()
			return s, asked, nil
		case errors.Is(err, queue.ErrSuperseded):
			return s, asked, err
		}
		w.complain(w.ctx, op, err)
		over := lease.Err() != nil || w.ctx.Err() != nil
		if errors.Is(err, queue.ErrDamaged) || over && time.Since(first) > w.lock.TTL {
			return s, asked, err
		}
		_ = room.Pause(context.WithoutCancel(w.ctx), room.Doubled(leastPause, mostPause, failures))
	}
}

// once runs an item and records how that has ended.
func (w *worker[In]) once(inside context.Context, h *claimedKey, lease *core.Lease, holder queue.Holder, item queue.Item, begun time.Time) (queue.Step, time.Time, error) {
	ctx, span := w.signals.begins(inside, holder.Token, &item)
	started, gaveUp, failure := w.call(ctx, holder, item)
	lasted := time.Since(started)
	e := queue.Ending{Sequence: item.Sequence, Attempt: item.Attempt, Outcome: queue.Done, Late: started.Sub(begun)}
	switch {
	case gaveUp:
		e.Outcome = queue.Dead
	case failure != nil:
		e.Outcome, e.After = queue.Retry, room.Doubled(w.policy.Backoff.Least, w.policy.Backoff.Most, item.Attempt)
	}
	step, asked, err := w.ask(h, lease, "end", func(ctx context.Context) (queue.Step, error) {
		e.Next = w.goesOn(lease)
		holder.Grace = time.Duration(w.grace.Load())
		return w.queue.End(ctx, holder, e)
	})
	outcome := e.Outcome.String()
	switch {
	case errors.Is(err, queue.ErrSuperseded):
		outcome = superseded
	case err != nil:
		outcome = unrecorded
	case e.Outcome == queue.Retry && item.Attempt >= w.policy.Attempts:
		outcome = queue.Dead.String()
	}
	w.signals.ended(ctx, span, outcome, lasted)
	if failure != nil || err != nil {
		w.engine.Logger().WarnContext(ctx, "lockaround: a run of a queued item has not ended well", "lock.name", w.guard.Name(),
			"item", item.ID, "attempt", item.Attempt, "of", w.policy.Attempts, "lock.outcome", outcome, "error", errors.Join(failure, err))
	}
	return step, asked, err
}

// goesOn reports whether the next item may run under the same lease.
func (w *worker[In]) goesOn(lease *core.Lease) bool {
	if w.ctx.Err() != nil || lease.Err() != nil || w.lock.MaxHold > 0 {
		return false
	}
	select {
	case <-lease.Contended():
		return false
	default:
		return true
	}
}

// call runs the function for an item, and says when it has started: as late as can be, for the
// spacing counts from there. A panic and a Goexit are errors, also of the codec.
func (w *worker[In]) call(ctx context.Context, holder queue.Holder, item queue.Item) (started time.Time, gaveUp bool, err error) {
	running := "codec"
	err = room.Apart(func() error {
		var in In
		if err := w.policy.Codec.Unmarshal(item.Payload, &in); err != nil {
			return fmt.Errorf("the item cannot be decoded: %w", err)
		}
		running, started = "function", time.Now()
		ctx = context.WithValue(ctx, runInfoKey{}, RunInfo{ID: item.ID, Sequence: item.Sequence, Attempt: item.Attempt, Last: item.Attempt >= w.policy.Attempts, Started: started})
		err := w.run(ctx, holder, item, in)
		gaveUp = errors.Is(err, ErrGiveUp) // which may ask a method of the error
		return err
	})
	if started.IsZero() {
		started = time.Now()
	}
	return started, gaveUp, room.FaultOf(running, err)
}
