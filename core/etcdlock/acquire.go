package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	defer leave()
	req := s.begun.take(r.ID)
	if req == nil {
		req = &request{s: s, Request: r, names: namesOf(r.ID)}
		req.beginReplacement()
	}
	ctx = s.telling(ctx, r.ID)
	g, err := req.run(ctx)
	if err != nil && ctx.Err() == nil {
		req.suspectPredecessors(nil)
	}
	req.cleanUp(err)
	return g, err
}

// beginReplacement begins to release the lease that this request replaces.
func (req *request) beginReplacement() {
	if req.Replace == nil {
		return
	}
	req.old = req.s.claims.get(req.Replace.ID)
	if req.old != nil {
		req.s.claims.beginRelease(req.old, req.Replace.Deadline, time.Now())
	}
}

// run asks for the key, on a spare etcd lease if there is one.
func (req *request) run(ctx context.Context) (driver.Grant, error) {
	if err := check(&req.Request); err != nil {
		return driver.Grant{}, err
	}
	if ctx.Err() != nil {
		return driver.Grant{}, contextError(ctx)
	}
	cl, ended := req.s.claims.find(req.ID)
	switch {
	case ended != 0:
		return driver.Grant{}, driver.ErrPlaceLost
	case req.leased: // begun
		return req.askOnLease(ctx)
	case cl != nil:
		return req.answerAgain(ctx, cl)
	}
	if _, err := req.awaitHiddenHolders(ctx); err != nil {
		return driver.Grant{}, err
	}
	if !req.Wait && req.Replace == nil && req.s.refusals.recentlyRefused(req.Key, time.Now()) {
		q, err := req.s.queue(ctx, req.names)
		if err != nil {
			return driver.Grant{}, err
		}
		if !admits(req.newPlace(waiting), q.entries) {
			return driver.Grant{}, req.refuse(&q)
		}
	}
	l, spare := req.s.spares.take(seconds(req.TTL), req.Key, time.Now())
	if spare {
		g, err := req.runOnLease(ctx, l)
		if !errors.Is(err, driver.ErrPlaceLost) || req.uncertain || req.placed {
			return g, err
		}
		req.leased = false // etcd had ended it
	}
	l, err := req.s.newLease(ctx, req.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	return req.runOnLease(ctx, l)
}

// check refuses requests that the driver cannot serve.
func check(r *driver.Request) error {
	switch {
	case r.Mode > driver.Semaphore:
		return &driver.PermanentError{Err: fmt.Errorf("etcd: mode %d is not offered", r.Mode)}
	case r.Mode == driver.Semaphore && r.Limit < 1:
		return &driver.PermanentError{Err: fmt.Errorf("etcd: a semaphore with a limit of %d; at least 1 is needed", r.Limit)}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: fmt.Errorf("etcd: a TTL of %v is too short; use at least %v", r.TTL, minTTL)}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("etcd: the lease to replace is of another key")}
	}
	return nil
}

var _ driver.Prompt = (*session)(nil)

// Begin asks for the key once, on a spare etcd lease, if nobody has been seen to wait for the key
// and etcd has answered quickly of late. It takes no place in the queue but that of a holder.
func (s *session) Begin(r driver.Request, now time.Time) (g driver.Grant, done bool, err error) {
	if !s.pace.quick(now) || check(&r) != nil || s.Enter() != nil {
		return g, false, nil
	}
	defer s.Leave()
	if cl, ended := s.claims.find(r.ID); cl != nil || ended != 0 || s.refusals.recently(r.Key, now) || now.Before(s.hidden.until(r.Key)) {
		return g, false, nil
	}
	l, ok := s.spares.take(seconds(r.TTL), r.Key, now)
	if !ok {
		return g, false, nil
	}
	req := &request{s: s, Request: r, names: namesOf(r.ID)}
	req.putOn(l)
	req.refreshed = nothingToAwait
	ctx, cancel := context.WithTimeout(s.Open, budget)
	defer cancel()
	g, err = req.begin(ctx)
	switch {
	case err != errGoOn:
		req.cleanUp(err)
		return g, true, err
	case !req.uncertain || !s.begun.add(req): // otherwise the place may be there, or come
		req.giveBack()
	}
	return driver.Grant{}, false, nil
}

// errGoOn says that Acquire has to go on.
var errGoOn = errors.New("etcd: the request is not settled yet")

func (req *request) begin(ctx context.Context) (driver.Grant, error) {
	if req.staleLease() {
		return driver.Grant{}, errGoOn
	}
	r, err := req.takeIfFree(ctx, req.names.read())
	switch {
	case leaseNotFound(err):
		req.leased = false // etcd had ended it
		return driver.Grant{}, errGoOn
	case err != nil:
		return driver.Grant{}, errGoOn
	case r.Succeeded:
		return req.taken(ctx, r)
	case req.Wait:
		req.s.refusals.addWait(req.Key, time.Now())
		return driver.Grant{}, errGoOn
	}
	q, err := queueOf(r)
	if err != nil {
		return driver.Grant{}, err
	}
	if own, _ := q.find(req.names.place); own != nil || admits(req.newPlace(waiting), q.entries) {
		return driver.Grant{}, errGoOn
	}
	return driver.Grant{}, req.refuse(&q)
}

// budget is how long Begin and End wait for etcd.
const budget = driver.Promptness * 4 / 5

// answerAgain answers a repeated request whose lease was granted before.
func (req *request) answerAgain(ctx context.Context, cl *claim) (driver.Grant, error) {
	out := req.s.renew(ctx, driver.Renewal{ID: req.ID, Token: cl.create, TTL: req.TTL})
	switch {
	case errors.Is(out.Err, driver.ErrNotHeld):
		return driver.Grant{}, driver.ErrPlaceLost
	case out.Err != nil:
		req.s.giveBackLeases(cl, false)
		return driver.Grant{}, out.Err
	}
	return driver.Grant{ID: req.ID, Ref: cl.names.ref(cl.id), Token: cl.create, Deadline: out.Deadline, Contended: out.Contended}, nil
}

// runOnLease asks for the key with a place on etcd lease l.
func (req *request) runOnLease(ctx context.Context, l etcdLease) (driver.Grant, error) {
	req.putOn(l)
	return req.askOnLease(ctx)
}

// askOnLease asks for the key with the place that putOn has named.
func (req *request) askOnLease(ctx context.Context) (driver.Grant, error) {
	req.refreshed = req.refresh(ctx)
	if req.Wait {
		return req.enqueue(ctx)
	}
	return req.acquireAtOnce(ctx)
}

// putOn puts the owner's place on etcd lease l, before it is written.
func (req *request) putOn(l etcdLease) {
	l.key = req.Key
	req.names = req.names.withPlace(l.id, driver.Origin{Identity: req.s.identity, Trace: req.Trace})
	req.mu.Lock()
	defer req.mu.Unlock()
	req.lease, req.leaseGone, req.leased = l, false, true
}

// enqueue takes a place at the end of the queue. In an empty queue that place is the lease. Of a
// key that nobody has been seen to wait for, it first asks for no more than the lease: what is
// said and not done costs etcd as much as what is done.
func (req *request) enqueue(ctx context.Context) (driver.Grant, error) {
	first := req.Replace == nil && !req.s.refusals.recentlyWaitedFor(req.Key, time.Now())
	var r *clientv3.TxnResponse
	var err error
	if first {
		switch r, err = req.takeIfFree(ctx, req.names.read()); {
		case err != nil:
			return driver.Grant{}, req.placeError(err)
		case r.Succeeded:
			return req.taken(ctx, r)
		}
		req.s.refusals.addWait(req.Key, time.Now())
	}
	if req.MaxWaiting > 0 {
		if !first { // a read costs no disk
			r, err = req.s.commit(ctx, nil, []clientv3.Op{req.names.read()}, nil)
		}
		var q queue
		if err == nil {
			q, err = queueOf(r)
		}
		if err == nil {
			err = req.refuseIfFull(&q)
		}
		if err != nil {
			return driver.Grant{}, err
		}
	}
	isNew, look := []clientv3.Cmp{req.names.isNew()}, []clientv3.Op{req.names.read()}
	queued := append(req.names.writeFirst(req.newPlace(waiting), req.currentLease()), look...)
	if req.Mode == driver.Exclusive && req.Replace == nil { // the first place of the queue is the lease
		r, err = req.commitAlong(ctx, isNew, queued, look)
	} else if r, err = req.takeIfFree(ctx, clientv3.OpTxn(isNew, queued, look)); err == nil && r.Succeeded {
		return req.taken(ctx, r)
	}
	if err != nil {
		return driver.Grant{}, req.placeError(err)
	}
	req.notePlace()
	q, err := queueOf(r)
	if err != nil {
		return driver.Grant{}, err
	}
	if own, _ := q.find(req.names.place); own != nil {
		req.adopt(own)
		if err := req.refuseIfFull(&q); err != nil { // others came between
			req.withdraw(ctx)
			return driver.Grant{}, err
		}
	}
	return req.wait(ctx, q)
}

// taken makes the place that a transaction has just created the owner's lease.
func (req *request) taken(ctx context.Context, r *clientv3.TxnResponse) (driver.Grant, error) {
	req.notePlace()
	return req.grant(ctx, r.Header.Revision, r.Header.Revision, false)
}

// refuseIfFull returns the refusal of a request that may not wait behind so many others, by the queue
// with its place or before it has one; nil if it may.
func (req *request) refuseIfFull(q *queue) error {
	own, before := q.find(req.names.place)
	if own == nil {
		before = q.entries
	}
	if req.MaxWaiting == 0 || countWaiting(before) < req.MaxWaiting || admits(req.newPlace(waiting), before) {
		return nil
	}
	return &driver.HeldError{RetryAfter: q.retryAfter(), Holder: q.taker(), Full: true}
}

// withdraw deletes the place of a request that is refused, so that it counts for nobody who comes
// later. If it fails, cleanUp does so.
func (req *request) withdraw(ctx context.Context) {
	if _, err := req.commit(ctx, nil, []clientv3.Op{req.names.deleteIfOld(req.create)}, nil); err == nil {
		req.placed = false
	}
}

// acquireAtOnce acquires the key without waiting.
func (req *request) acquireAtOnce(ctx context.Context) (driver.Grant, error) {
	r, err := req.takeIfFree(ctx, req.names.read())
	for {
		if err != nil {
			return driver.Grant{}, req.placeError(err)
		}
		if r.Succeeded {
			return req.taken(ctx, r)
		}
		q, err := queueOf(r)
		if err != nil {
			return driver.Grant{}, err
		}
		if own, before := q.find(req.names.place); own != nil {
			return req.resume(ctx, own, before, q)
		}
		if !admits(req.newPlace(waiting), q.entries) {
			return driver.Grant{}, req.refuse(&q)
		}
		// A place that was created since q was read comes before this one.
		r, err = req.commit(ctx,
			[]clientv3.Cmp{req.names.isNew(), req.names.all("<", q.rev+1)},
			req.names.writeFirst(req.newPlace(holding), req.currentLease()),
			[]clientv3.Op{req.names.read()})
		if err != nil {
			return driver.Grant{}, req.placeError(err)
		}
	}
}

// resume continues acquireAtOnce for an owner that already has a place.
func (req *request) resume(ctx context.Context, own *entry, before []entry, q queue) (driver.Grant, error) {
	req.adopt(own)
	if own.stage == waiting && !admits(own.place, before) {
		return driver.Grant{}, req.refuse(&q)
	}
	return req.wait(ctx, q)
}

// refuse returns the error of a request that would not wait.
func (req *request) refuse(q *queue) error {
	req.tellHolder = req.s.refusals.add(req.Key, q.token(), time.Now())
	return &driver.HeldError{RetryAfter: q.retryAfter(), Holder: q.taker()}
}

// takeIfFree takes the key if its queue is empty, apart from the lease to replace.
// Otherwise it runs more, in the same transaction; more ends by reading the queue.
func (req *request) takeIfFree(ctx context.Context, more ...clientv3.Op) (*clientv3.TxnResponse, error) {
	free := req.names.all("=", 0)
	then := req.names.writeFirst(req.newPlace(holding), req.currentLease())
	if old := req.old; old != nil {
		free = req.names.all("=", old.create)
		then = append([]clientv3.Op{clientv3.OpDelete(old.names.place)}, then...)
		more = append([]clientv3.Op{old.names.deleteIfOld(old.create)}, more...)
	}
	r, err := req.commitAlong(ctx, []clientv3.Cmp{free}, then, more)
	if err == nil {
		req.replaced = true
	}
	return r, err
}

// commitAlong is commit, and takes along places that are to be deleted.
func (req *request) commitAlong(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	r, uncertain, err := req.s.commitAlong(ctx, req.names, ifs, then, otherwise)
	req.uncertain = req.uncertain || uncertain
	return r, err
}

// cleanUp cleans up after an Acquire that returns err.
func (req *request) cleanUp(err error) {
	if old := req.Replace; old != nil {
		if req.old != nil {
			req.s.giveBackLeases(req.old, req.replaced)
		}
		req.s.claims.end(old.ID, released)
	}
	if err == nil {
		return
	}
	req.s.claims.end(req.ID, notHeld)
	req.giveBack()
}

// giveBack gives back what a request that was granted nothing has left at etcd.
func (req *request) giveBack() {
	if !req.leased && !req.tellHolder {
		return
	}
	l, d := req.currentLease(), debt{}
	switch {
	case req.tellHolder:
		d.contended, d.used = req.names.contended, l.used
	case !req.uncertain && !req.leaseGone:
		d.spare = l
	}
	if req.placed || req.uncertain {
		d.place = req.names.place
	}
	if req.leased && d.spare.id == 0 {
		d.leases = []clientv3.LeaseID{l.id}
	}
	if d.place == "" && d.spare.id != 0 && req.s.spares.add(d.spare) {
		return
	}
	req.s.owe(d, secondsToDuration(l.seconds))
}

// pace is how quickly etcd answers. The zero value is ready for use.
type pace struct {
	mu      sync.Mutex
	quickAt time.Time // when the latest answer came, if that was quick
}

// note notes an attempt that took so long. failed says that it had no answer.
func (p *pace) note(now time.Time, took time.Duration, failed bool) {
	if failed || took > driver.Promptness/2 {
		now = time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quickAt = now
}

// quick reports whether etcd has answered within the last second, and quickly.
func (p *pace) quick(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.quickAt.IsZero() && now.Sub(p.quickAt) < time.Second
}
