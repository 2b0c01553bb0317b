package etcdlock

import (
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
