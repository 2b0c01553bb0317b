package etcdlock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// Release ends leases.
func (s *session) Release(ctx context.Context, es []driver.Ending) []error {
	out := make([]error, len(es))
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer leave()
	each(len(es), func(i int) { out[i] = s.release(ctx, es[i]) })
	return out
}

// release ends one lease.
func (s *session) release(ctx context.Context, e driver.Ending) error {
	cl, ended := s.claims.find(e.ID)
	switch {
	case ended == released:
		return nil
	case ended == notHeld:
		return driver.ErrNotHeld
	case cl == nil:
		var err error
		if cl, err = s.findOfOtherSession(ctx, e.ID, e.Ref, e.Token); err != nil {
			return err
		}
		s.claims.addOfOtherSession(cl)
	}
	first, inTime := s.claims.beginRelease(cl, e.Deadline, time.Now())
	held, err := s.endPlace(ctx, cl, e.Keep, first)
	if err != nil {
		// The lease has ended for this process, whatever the request's outcome.
		leases, ttl := s.claims.giveUp(cl)
		d := debt{done: func() { s.claims.end(e.ID, released) }}
		if cl.foreign() { // its session may use the name and the lease again
			d.foreign = &e
		} else {
			d.place, d.leases = cl.names.place, leases
		}
		if e.Keep > 0 && !cl.foreign() {
			d.due = cl.granted.Add(e.Keep)
		}
		s.owe(d, ttl)
		return err
	}
	if held && inTime { // the lease at etcd outlasts the deadline of its holder
		s.claims.end(e.ID, released)
		return nil
	}
	s.claims.end(e.ID, notHeld)
	return driver.ErrNotHeld
}

// End releases a lease of this session.
func (s *session) End(e driver.Ending, now time.Time) (done bool, err error) {
	if e.Keep > 0 || !s.pace.quick(now) || s.Enter() != nil {
		return false, nil
	}
	defer s.Leave()
	if s.claims.get(e.ID) == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(s.Open, budget)
	defer cancel()
	err = s.release(ctx, e)
	return err == nil || errors.Is(err, driver.ErrNotHeld), err
}

// endPlace deletes the place of a lease, or keeps the key. held is false if the place was
// gone, unless an earlier request whose answer was lost may have deleted it.
func (s *session) endPlace(ctx context.Context, cl *claim, keep time.Duration, first bool) (held bool, err error) {
	for left := keep; left > 0; {
		if !cl.foreign() { // otherwise only another session knows when it was granted
			if left = time.Until(cl.granted.Add(keep)); left <= 0 {
				break
			}
		}
		if held, err = s.keepKey(ctx, cl, left); !leaseNotFound(err) {
			return held || !first, err
		}
	}
	if cl.foreign() { // its session may use the name again
		r, uncertain, err := s.commitUncertain(ctx, []clientv3.Cmp{cl.names.isOld(cl.create)}, []clientv3.Op{clientv3.OpDelete(cl.names.place)}, nil)
		return err == nil && (r.Succeeded || uncertain || !first), err
	}
	deleted, uncertain, err := s.delete(ctx, cl.names)
	if err != nil {
		return false, err
	}
	s.giveBackLeases(cl, deleted && !uncertain)
	return deleted || uncertain || !first, nil
}

// keepKey keeps the key taken, by nobody, for the time that is left. Then this process frees
// it. If the process has ended, etcd frees it when the lease expires, a few seconds later. If that
// lease has ended before the key was on it, the error says that it was not found.
func (s *session) keepKey(ctx context.Context, cl *claim, left time.Duration) (held bool, err error) {
	until := time.Now().Add(left)
	if err := cl.lockWriting(ctx); err != nil {
		return false, err
	}
	defer cl.unlockWriting()
	l, err := s.newLease(ctx, left)
	if err != nil {
		return false, err
	}
	s.claims.mu.Lock()
	before := cl.leases
	cl.leases = append(before[:len(before):len(before)], l.id)
	s.claims.mu.Unlock()
	p := cl.place
	p.stage = kept
	l.used = true // it needs no alive key: nobody waits for its holder
	_, uncertain, err := s.touch(ctx, cl, l, p, true)
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		s.owe(debt{leases: []clientv3.LeaseID{l.id}}, left)
		return uncertain, nil // it may have been put on that lease, and have ended with it
	case err != nil:
		return false, err
	}
	s.giveUpLeases(cl, before)
	s.owe(debt{leases: []clientv3.LeaseID{l.id}, due: until}, left)
	return true, nil
}

// endings are places that are to be deleted. An acquisition takes along those that are in the queue
// when it is sent, and otherwise one request takes all of them: etcd agrees on them and writes them
// to its disks once. None waits for others to come. The zero value is ready for use.
type endings struct {
	mu      sync.Mutex
	queue   []*ending
	sending int  // requests under way, without those that are late, and without acquisitions
	asking  int  // acquisitions under way
	alone   bool // acquisitions take none along: etcd refuses so many operations
}

const (
	// maxSending bounds the requests that are under way at once, without those that are late.
	maxSending = 8

	// late is after how long another request may be sent beside one that has no answer.
	late = 100 * time.Millisecond

	// maxTogether bounds the places that are deleted together. etcd itself refuses more than
	// 128 operations in a transaction, unless it is told to.
	maxTogether = 64

	// crowd is how many other requests are under way when the one who deletes a place first lets
	// those run who could run at once: they may be about to acquire.
	crowd = 3

	// maxAlong bounds the places that an acquisition takes along, which delay it.
	maxAlong = 16
)

// ending is a place of this session that is to be deleted.
type ending struct {
	names names
	taken bool // out of the queue

	done      chan struct{} // closed when the rest is set
	deleted   bool
	uncertain bool // it may have been deleted by an earlier attempt, or may be yet
	err       error
}

func (e *ending) isDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// take takes up to n of those that fit, or of all if fits is nil, out of the queue. q.mu is held.
func (q *endings) take(n int, fits func(*ending) bool) (batch []*ending) {
	q.queue = slices.DeleteFunc(q.queue, func(e *ending) bool {
		e.taken = len(batch) < n && (fits == nil || fits(e))
		if e.taken {
			batch = append(batch, e)
		}
		return e.taken
	})
	return batch
}

// takeAlong takes out of the queue what an acquisition of another key takes along. etcd compares
// before it executes anything: it would not find a key free whose place it is about to delete.
func (q *endings) takeAlong(n names) []*ending {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asking++
	if q.alone || len(q.queue) == 0 {
		return nil
	}
	return q.take(maxAlong, func(e *ending) bool { return e.names.queue != n.queue })
}

// asked ends what takeAlong has begun.
func (q *endings) asked() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asking--
}

// goAlone lets acquisitions take none along any more.
func (q *endings) goAlone() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alone = true
}

// answer answers those that etcd has deleted, with the responses to their deletions.
func answer(batch []*ending, rs []*pb.ResponseOp) {
	for i, e := range batch {
		e.deleted = rs[i].GetResponseDeleteRange().Deleted > 0
		close(e.done)
	}
}

// deletions are the operations that delete the places.
func deletions(batch []*ending) []clientv3.Op {
	ops := make([]clientv3.Op, len(batch), len(batch)+3)
	for i, e := range batch {
		ops[i] = clientv3.OpDelete(e.names.place)
	}
	return ops
}

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
