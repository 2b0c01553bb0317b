package etcdlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// delete deletes a place of this session. If uncertain, the request may be executed once more at any
// time, so that the name must not be used again.
func (s *session) delete(ctx context.Context, n names) (deleted, uncertain bool, err error) {
	e := &ending{names: n, done: make(chan struct{})}
	q := &s.endings
	q.mu.Lock()
	q.queue = append(q.queue, e)
	others := q.sending + q.asking
	q.mu.Unlock()
	if others >= crowd {
		runtime.Gosched()
	}
	if batch := q.takeWith(e, s); batch != nil && s.send(ctx, batch) {
		q.mu.Lock()
		q.sending--
		q.start(s)
		q.mu.Unlock()
	}
	if !e.isDone() {
		ctx, cancel := atMost(ctx, s.timeout+late)
		defer cancel()
		select {
		case <-e.done:
		case <-ctx.Done():
			if !e.isDone() {
				return false, true, contextError(ctx)
			}
		}
	}
	return e.deleted, e.uncertain, e.err
}

// takeWith takes e out of the queue, and others with it, for a request. It returns nil if e has gone
// with another request, or will go with the next.
func (q *endings) takeWith(e *ending, s *session) []*ending {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.taken || q.sending >= maxSending {
		return nil
	}
	if !slices.Contains(q.queue[:min(len(q.queue), maxTogether)], e) {
		q.start(s)
		return nil
	}
	q.sending++
	return q.take(maxTogether, nil)
}

// deleteBy runs an acquisition's transaction that begins with the deletions of places, and returns the
// rest of its answer. refused reports that etcd does not execute such a transaction, and has not
// executed this one.
func (q *endings) deleteBy(txn clientv3.Txn, batch []*ending, s *session) (r *clientv3.TxnResponse, refused bool, err error) {
	r, err = txn.Commit()
	if err == nil {
		answer(batch, r.Responses)
		r.Responses = r.Responses[len(batch):]
		return r, false, nil
	}
	var permanent *driver.PermanentError
	refused = errors.As(classify(err), &permanent)
	q.putBack(s, batch, !refused && !leaseNotFound(err))
	return nil, refused, err
}

// putBack puts places that were not deleted, or perhaps not, into the queue again, and sends it.
func (q *endings) putBack(s *session, batch []*ending, uncertain bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range batch {
		e.taken, e.uncertain = false, e.uncertain || uncertain
	}
	q.queue = slices.Concat(batch, q.queue)
	q.start(s)
}

// start starts a goroutine that sends what is in the queue, if there is room for one. q.mu is held.
func (q *endings) start(s *session) {
	if q.sending >= maxSending || len(q.queue) == 0 {
		return
	}
	q.sending++
	started := s.Start(func() {
		runtime.Gosched() // those who are about to come may travel too
		for s.sendNext() {
		}
	})
	if !started {
		q.sending--
		for _, e := range q.queue {
			e.err = driver.ErrClosed
			close(e.done)
		}
		q.queue = nil
	}
}

// sendNext sends one request. It reports whether to go on: not if the queue is empty, or if others
// have taken over because the request was late.
func (s *session) sendNext() bool {
	q := &s.endings
	q.mu.Lock()
	batch := q.take(maxTogether, nil)
	if len(batch) == 0 {
		q.sending--
	}
	q.mu.Unlock()
	return len(batch) > 0 && s.send(s.Open, batch)
}

// send sends one request. It reports false if another took its place because it was late.
func (s *session) send(ctx context.Context, batch []*ending) bool {
	q := &s.endings
	answered, tookOver := false, false // guarded by q.mu
	timer := time.AfterFunc(late, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !answered {
			tookOver = true
			q.sending--
			q.start(s)
		}
	})
	s.deleteTogether(ctx, batch)
	timer.Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	answered = true
	return !tookOver
}

// deleteTogether deletes places in one transaction. If etcd refuses that, each is tried alone.
func (s *session) deleteTogether(ctx context.Context, batch []*ending) {
	if len(batch) == 1 {
		batch[0].delete(ctx, s)
		return
	}
	if ctx.Err() != nil && s.Open.Err() == nil { // nothing is sent
		s.endings.putBack(s, batch, false)
		return
	}
	ops := deletions(batch)
	r, uncertain, err := retryBy(ctx, s, inline, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).Then(ops...).Commit()
	})
	for _, e := range batch {
		e.uncertain = e.uncertain || uncertain
	}
	switch {
	case err == nil:
		answer(batch, r.Responses)
	case ctx.Err() != nil && s.Open.Err() == nil: // one caller has ended, who sends for the others
		s.endings.putBack(s, batch, true)
	case !retryable(err) && ctx.Err() == nil && s.Start(func() {
		each(len(batch), func(i int) { batch[i].delete(s.Open, s) })
	}):
	default:
		for _, e := range batch {
			e.uncertain, e.err = true, err
			close(e.done)
		}
	}
}

// delete deletes one place.
func (e *ending) delete(ctx context.Context, s *session) {
	r, uncertain, err := retryBy(ctx, s, inline, func(ctx context.Context) (*clientv3.DeleteResponse, error) {
		return s.client.Delete(ctx, e.names.place)
	})
	e.uncertain, e.err = e.uncertain || uncertain || err != nil, err
	if err == nil {
		e.deleted = r.Deleted > 0
	}
	close(e.done)
}
