package etcdlock

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// endings are places that are to be deleted. Those that come while requests are under way travel
// together in the next one, which etcd agrees on and writes to its disks once. None waits for
// others to come. The zero value is ready for use.
type endings struct {
	mu      sync.Mutex
	queue   []*ending
	sending int // requests under way, without those that are late
}

const (
	// maxSending bounds the requests that are under way at once, without those that are late.
	maxSending = 8

	// late is after how long another request may be sent beside one that has no answer.
	late = 100 * time.Millisecond

	// maxTogether bounds the places that are deleted together. etcd itself refuses more than
	// 128 operations in a transaction, unless it is told to.
	maxTogether = 64
)

// ending is a place of this session that is to be deleted.
type ending struct {
	place string

	done      chan struct{} // closed when the rest is set
	deleted   bool
	uncertain bool // it may have been deleted by an earlier attempt, or may be yet
	err       error
}

// delete deletes a place of this session. If uncertain, the request may be executed once more at any
// time, so that the name must not be used again.
func (s *session) delete(ctx context.Context, place string) (deleted, uncertain bool, err error) {
	e := &ending{place: place, done: make(chan struct{})}
	q := &s.endings
	q.mu.Lock()
	if q.sending < maxSending && len(q.queue) == 0 {
		q.sending++
		q.mu.Unlock()
		if s.send(ctx, []*ending{e}) {
			q.mu.Lock()
			q.sending--
			q.start(s)
			q.mu.Unlock()
		}
		return e.deleted, e.uncertain, e.err
	}
	q.queue = append(q.queue, e)
	q.start(s)
	q.mu.Unlock()
	timeout := time.NewTimer(s.timeout + late)
	defer timeout.Stop()
	select {
	case <-e.done:
		return e.deleted, e.uncertain, e.err
	case <-ctx.Done():
		return false, true, contextError(ctx)
	case <-timeout.C:
		return false, true, silenceError(s.timeout + late)
	}
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
	n := min(len(q.queue), maxTogether)
	batch := slices.Clone(q.queue[:n])
	q.queue = slices.Delete(q.queue, 0, n)
	if n == 0 {
		q.sending--
		q.mu.Unlock()
		return false
	}
	q.mu.Unlock()
	return s.send(s.Open, batch)
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
	ops := make([]clientv3.Op, len(batch))
	for i, e := range batch {
		ops[i] = clientv3.OpDelete(e.place)
	}
	r, uncertain, err := retryBy(ctx, s, inline, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).Then(ops...).Commit()
	})
	for _, e := range batch {
		e.uncertain = uncertain
	}
	if err != nil && !retryable(err) && ctx.Err() == nil {
		each(len(batch), func(i int) { batch[i].delete(ctx, s) })
		return
	}
	for i, e := range batch {
		e.uncertain, e.err = uncertain || err != nil, err
		if err == nil {
			e.deleted = r.Responses[i].GetResponseDeleteRange().Deleted > 0
		}
		close(e.done)
	}
}

// delete deletes one place.
func (e *ending) delete(ctx context.Context, s *session) {
	r, uncertain, err := retryBy(ctx, s, inline, func(ctx context.Context) (*clientv3.DeleteResponse, error) {
		return s.client.Delete(ctx, e.place)
	})
	e.uncertain, e.err = e.uncertain || uncertain || err != nil, err
	if err == nil {
		e.deleted = r.Deleted > 0
	}
	close(e.done)
}
