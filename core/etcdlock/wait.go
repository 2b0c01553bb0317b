package etcdlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// wait waits until the owner's place is admitted. It starts from q, the queue as last read.
func (req *request) wait(ctx context.Context, q queue) (driver.Grant, error) {
	reported := false
	stopKeepAlive := func() {}
	defer func() { stopKeepAlive() }()
	for {
		own, before := q.find(req.names.place)
		switch {
		case own == nil || own.stage == kept || req.create != 0 && own.create != req.create:
			if own == nil {
				req.suspectPredecessors(&q)
			}
			return driver.Grant{}, driver.ErrPlaceLost
		case own.stage == holding: // granted by a transaction whose answer was lost
			newest := q.entries[len(q.entries)-1] // if that one does not wait, nobody does
			return req.grant(ctx, own.create, q.rev, newest.stage == waiting)
		}
		req.notePredecessors(before)
		if req.create == 0 { // set once, before goroutines read it
			req.create = own.create
		}
		admitted := admits(own.place, before)
		if admitted {
			waited, err := req.awaitHiddenHolders(ctx)
			if err != nil {
				return driver.Grant{}, err
			}
			if req.Mode == driver.Exclusive && !waited {
				req.refreshed, req.unsaid = req.refresh(ctx), true
				return req.grant(ctx, own.create, q.rev, len(q.entries) > 1)
			}
		} else {
			driver.TakenBy(req.s.sink, req.ID, q.taker())
			if !reported {
				reported = true
				stopKeepAlive = req.startKeepAlive(ctx)
				req.s.sink.Waiting(req.ID)
			}
			if err := req.awaitChange(ctx, watchTargetOf(own.place, before), q.rev); err != nil {
				return driver.Grant{}, err
			}
		}
		next, g, err := req.takeOrRead(ctx, admitted)
		if err != nil {
			return driver.Grant{}, err
		}
		if g != nil {
			return *g, nil
		}
		q = next
	}
}

// takeOrRead takes the lease if the owner is admitted, or else reads the queue. If admitted
// is false, an exclusive request is tried all the same: it succeeds if its place is first.
//
// An exclusive lease is taken by a read, which costs no disk: no other place is before the owner's own,
// and none can come there. As long as that place is on its etcd lease, nobody else holds the key, and
// the deadline counts from before that was renewed. The transaction shows at one revision that the place
// is there, and that those before it were given up.
func (req *request) takeOrRead(ctx context.Context, admitted bool) (queue, *driver.Grant, error) {
	req.refreshed = req.refresh(ctx)
	for {
		before := req.knownPredecessors()
		r, err := req.commitTake(ctx, admitted, before)
		switch {
		case leaseNotFound(err):
			return queue{}, nil, driver.ErrPlaceLost
		case retryable(err) && ctx.Err() == nil && req.alive():
			continue // retry has used up its time
		case err != nil:
			return queue{}, nil, err
		case !r.Succeeded || !admitted && req.Mode != driver.Exclusive:
			q, err := queueOf(r)
			if err == nil {
				req.checkPredecessors(before, q.has, r.Responses)
			}
			return q, nil, err
		}
		last := r.Responses[len(r.Responses)-1].GetResponseRange()
		others := last.Count > 1
		if req.unsaid = req.Mode == driver.Exclusive; !req.unsaid {
			if others, err = othersWait(last, req.names.place); err != nil {
				return queue{}, nil, err
			}
		}
		g, err := req.grant(ctx, req.create, r.Header.Revision, others)
		return queue{}, &g, err
	}
}

// commitTake runs the transaction of takeOrRead.
func (req *request) commitTake(ctx context.Context, admitted bool, before predecessors) (*clientv3.TxnResponse, error) {
	read := append(before.readAliveKeys(), req.names.read())
	switch {
	case req.Mode == driver.Exclusive:
		ifs := append([]clientv3.Cmp{req.names.isOld(req.create), req.names.all(">", req.create-1)}, before.allAlive()...)
		return req.s.commit(ctx, ifs, []clientv3.Op{req.names.count()}, read)
	case !admitted:
		return req.s.commit(ctx, nil, read, nil)
	}
	then := []clientv3.Op{req.names.write(req.newPlace(holding), req.currentLease().id), req.names.newest()}
	return req.commit(ctx, []clientv3.Cmp{req.names.untouched(req.create)}, then, read)
}

// awaitChange returns when the target has changed, or may have changed, since rev.
func (req *request) awaitChange(ctx context.Context, w watchTarget, rev int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, missed := kit.NewSignal(), kit.NewSignal()
	req.s.Start(func() { req.watch(ctx, w, rev, changed.Set, missed.Set) })
	req.s.Start(func() { req.poll(ctx, w, rev, changed.Set, missed) })

	end := time.NewTimer(req.remaining())
	defer end.Stop()
	for {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return contextError(ctx)
		case <-end.C:
		}
		left := req.remaining()
		if left <= 0 {
			return errors.New("etcd: the cluster has not answered for so long that the place in the queue may be gone")
		}
		end.Reset(left)
	}
}

// pollInterval is how often a waiter polls what it also watches. Together with the time
// of an answer it stays below wake.
const pollInterval = 800 * time.Millisecond

const (
	// firstPoll is how soon a waiter polls first. Most waiters are served sooner.
	firstPoll = 250 * time.Millisecond

	// lateWatch is for how long a new watch may hear of everything late. Before etcd has it, somebody may
	// write; then it begins in the past, and etcd looks after such watches every 100 ms.
	lateWatch = 110 * time.Millisecond

	// latePoll is how often a waiter polls meanwhile if few are before it. If there are many, it only
	// reads once how long the lease of the first lasts: should that end before it is read, its owner
	// may be a hidden holder.
	latePoll = 15 * time.Millisecond
)

// watch watches the target, and calls notify when it has changed. It begins at etcd's present
// revision. If that revision is after rev, and few are before the waiter, it calls
// missed: the target may have gone meanwhile.
//
// A watch may end early: by a compaction, a lost leader or a revoked permission. Then notify is
// called too, after a pause, so that the waiter reads the queue again.
func (req *request) watch(ctx context.Context, w watchTarget, rev int64, notify, missed func()) {
	name, options := w.name, []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if name == "" {
		name, options = req.names.queue, append(options, clientv3.WithPrefix())
	}
	for r := range req.s.client.Watch(clientv3.WithRequireLeader(ctx), name, options...) {
		if r.Err() != nil {
			break
		}
		if r.Created && r.Header.Revision > rev && w.near {
			missed()
		}
		for _, event := range r.Events {
			if event.Kv.ModRevision <= rev { // of a member that is behind
				continue
			}
			if event.Type == mvccpb.Event_PUT {
				req.notePut(event.Kv)
			}
			// Places that were created later do not matter to this one.
			if event.Type == mvccpb.Event_DELETE || w.puts && event.Kv.CreateRevision <= req.create {
				notify()
				return
			}
		}
	}
	if kit.Sleep(ctx, time.Duration((0.5+rand.Float64())*float64(maxPause))) {
		notify()
	}
}

// poll calls notify if the target or the owner's place has changed and the watch has not
// reported it: from time to time, and once when the watch may have missed it. It also reads on which
// etcd leases the predecessors are, and how long those last: the mark of one that was given up is
// there for seconds only.
func (req *request) poll(ctx context.Context, w watchTarget, rev int64, notify func(), missed <-chan struct{}) {
	target := req.names.read()
	if w.name != "" {
		target = clientv3.OpGet(w.name)
	}
	began := time.Now()
	next := time.NewTimer(latePoll)
	defer next.Stop()
	for looked := false; ; {
		timed := false
		select {
		case <-ctx.Done():
			return
		case <-missed:
		case now := <-next.C:
			waited := now.Sub(began)
			timed = !looked || waited >= firstPoll
			switch {
			case waited >= firstPoll:
				next.Reset(pollInterval)
			case waited >= lateWatch || !w.near:
				next.Reset(firstPoll - waited)
			default:
				next.Reset(latePoll)
			}
			if !looked && !w.near {
				looked = true
				req.readTTLs(ctx, 1)
				continue
			}
			looked = true
		}
		before := req.knownPredecessors()
		ops := append([]clientv3.Op{clientv3.OpGet(req.names.place, clientv3.WithKeysOnly()), target}, before.readPlaces()...)
		r, err := req.s.commit(ctx, nil, slices.Concat(ops, before.readAliveKeys()), nil)
		if err != nil {
			continue
		}
		var kvs []*mvccpb.KeyValue
		for _, read := range r.Responses[2:len(ops)] {
			kvs = append(kvs, read.GetResponseRange().Kvs...)
		}
		for _, kv := range kvs {
			req.notePut(kv)
		}
		req.checkPredecessors(before, among(kvs), r.Responses[len(ops):])
		if len(r.Responses[0].GetResponseRange().Kvs) == 0 {
			notify()
			return
		}
		there, changed := 0, false
		for _, kv := range r.Responses[1].GetResponseRange().Kvs {
			if kv.CreateRevision < req.create {
				there++
				changed = changed || w.puts && kv.ModRevision > rev
			}
		}
		if changed || there != w.places {
			notify()
			return
		}
		if timed {
			req.readTTLs(ctx, maxPredecessors)
		}
	}
}

// among returns a function that reports whether a place is among kvs.
func among(kvs []*mvccpb.KeyValue) func(name string, create int64) bool {
	return func(name string, create int64) bool {
		return slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool {
			return string(kv.Key) == name && kv.CreateRevision == create
		})
	}
}
