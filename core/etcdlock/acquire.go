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

// enrolment is one running Acquire.
type enrolment struct {
	s     *session
	r     driver.Request
	names names
	old   *claim // the lease to replace, if the session has it

	create   int64           // revision of the owner's place; 0 while it has none
	leased   bool            // there is a lease to give back
	placed   bool            // the owner has a place, or had
	doubt    bool            // a request that writes the place may have run more than once, or may run yet
	replaced bool            // the lease to replace has ended
	knock    bool            // the holder is to hear of a request that would not wait
	late     <-chan struct{} // closed when the place's lease has been renewed, as far as that was needed

	mu   sync.Mutex
	term term   // of the place
	gone bool   // the server does not know the lease any more
	seen sights // what is known of those before

	before []entry // at the latest reading; of the goroutine of Acquire
}

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	defer leave()
	e := &enrolment{s: s, r: r, names: namesOf(r.ID)}
	e.retire()
	g, err := e.run(ctx)
	if err != nil && ctx.Err() == nil {
		e.suspect(nil)
	}
	e.settle(err)
	return g, err
}

// retire begins the end of the lease to replace.
func (e *enrolment) retire() {
	if e.r.Replace == nil {
		return
	}
	e.old = e.s.claims.get(e.r.Replace.ID)
	if e.old != nil {
		e.s.claims.part(e.old, e.r.Replace.Deadline, time.Now())
	}
}

// settle cleans up after an Acquire that returns err.
func (e *enrolment) settle(err error) {
	if old := e.r.Replace; old != nil {
		switch {
		case e.old != nil:
			e.s.giveBack(e.old, e.replaced)
		case !e.replaced:
			e.s.owe(debt{place: namesOf(old.ID).place}, e.r.TTL)
		}
		e.s.claims.end(old.ID, released)
	}
	if err == nil {
		return
	}
	e.s.claims.end(e.r.ID, over)
	if !e.leased && !e.knock {
		return
	}
	t, d := e.now(), debt{}
	switch {
	case e.knock:
		d.knock, d.used = e.names.knock, t.used
	case !e.doubt && !e.gone:
		d.spare = t
	}
	if e.placed || e.doubt {
		d.place = e.names.place
	}
	if e.leased && d.spare.id == 0 {
		d.leases = []clientv3.LeaseID{t.id}
	}
	if d.place == "" && d.spare.id != 0 && e.s.spares.add(d.spare) {
		return
	}
	e.s.owe(d, inSeconds(t.seconds))
}

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

func (e *enrolment) run(ctx context.Context) (driver.Grant, error) {
	if err := check(&e.r); err != nil {
		return driver.Grant{}, err
	}
	if ctx.Err() != nil {
		return driver.Grant{}, ended(ctx)
	}
	if e.s.claims.fate(e.r.ID) != 0 {
		return driver.Grant{}, driver.ErrPlaceLost
	}
	if cl := e.s.claims.get(e.r.ID); cl != nil {
		return e.again(ctx, cl)
	}
	if err := e.heed(ctx); err != nil {
		return driver.Grant{}, err
	}
	if !e.r.Wait && e.r.Replace == nil && e.s.refusals.recent(e.r.Key, time.Now()) {
		q, err := e.s.queue(ctx, e.names)
		if err != nil {
			return driver.Grant{}, err
		}
		if own, _ := q.find(e.names.place); own == nil && !admits(e.place(waiting), q.entries) {
			return driver.Grant{}, e.refuse(&q)
		}
	}
	t, spare := e.s.spares.take(seconds(e.r.TTL), time.Now())
	if spare {
		g, err := e.on(ctx, t)
		if !errors.Is(err, driver.ErrPlaceLost) || e.doubt || e.placed {
			return g, err
		}
		e.leased = false // etcd had ended it
	}
	t, err := e.s.newTerm(ctx, e.r.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	return e.on(ctx, t)
}

// on asks with a place on that lease.
func (e *enrolment) on(ctx context.Context, t term) (driver.Grant, error) {
	e.mu.Lock()
	e.term, e.gone = t, false
	e.mu.Unlock()
	e.leased = true
	e.late = e.refresh(ctx)
	if e.r.Wait {
		return e.enrol(ctx)
	}
	return e.try(ctx)
}

// again answers a request that was granted before.
func (e *enrolment) again(ctx context.Context, cl *claim) (driver.Grant, error) {
	out := e.s.renew(ctx, driver.Renewal{ID: e.r.ID, Token: cl.token, TTL: e.r.TTL})
	switch {
	case errors.Is(out.Err, driver.ErrNotHeld):
		return driver.Grant{}, driver.ErrPlaceLost
	case out.Err != nil:
		e.s.giveBack(cl, false)
		return driver.Grant{}, out.Err
	}
	return driver.Grant{ID: e.r.ID, Token: cl.token, Deadline: out.Deadline, Contended: out.Contended}, nil
}

func (e *enrolment) place(at stage) place {
	p := place{mode: e.r.Mode, limit: e.r.Limit, ttl: e.r.TTL, stage: at}
	if at == holding {
		p.since = time.Now()
	}
	return p
}

// opening begins a transaction that grants a key which nobody has, but the lease to
// replace, and reads the queue otherwise, after what more there is to do.
func (e *enrolment) opening(ctx context.Context, more ...clientv3.Op) (*clientv3.TxnResponse, error) {
	free := e.names.all("=", 0)
	then := e.names.writeFirst(e.place(holding), e.now())
	if e.r.Replace != nil {
		end := clientv3.OpDelete(namesOf(e.r.Replace.ID).place)
		more = append([]clientv3.Op{end}, more...)
		if e.old != nil {
			free = e.names.all("=", e.old.create)
			then = append([]clientv3.Op{end}, then...)
		}
	}
	r, err := e.write(ctx, []clientv3.Cmp{free}, then, more)
	if err == nil {
		e.replaced = true
	}
	return r, err
}

// write runs a transaction that may write the owner's place, and notes what of it is not
// certain.
func (e *enrolment) write(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	r, doubt, err := e.s.commitWithDoubt(ctx, ifs, then, otherwise)
	e.doubt = e.doubt || doubt
	return r, err
}

// hasPlace notes that the owner's place was written, on the lease that is known.
func (e *enrolment) hasPlace() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.placed, e.term.used = true, true
}

// enrol takes a place at the end of the queue, which is the lease if nobody is there.
func (e *enrolment) enrol(ctx context.Context) (driver.Grant, error) {
	r, err := e.opening(ctx, clientv3.OpTxn(
		[]clientv3.Cmp{e.names.isNew()},
		append(e.names.writeFirst(e.place(waiting), e.now()), e.names.read()),
		[]clientv3.Op{e.names.read()},
	))
	if err != nil {
		return driver.Grant{}, e.lost(err)
	}
	e.hasPlace()
	if r.Succeeded {
		return e.take(ctx, r.Header.Revision, r.Header.Revision, false)
	}
	q, err := queueOf(r)
	if err != nil {
		return driver.Grant{}, err
	}
	if own, _ := q.find(e.names.place); own != nil {
		if err := e.adopt(ctx, own); err != nil {
			return driver.Grant{}, err
		}
	}
	return e.wait(ctx, q)
}

// try asks without waiting.
func (e *enrolment) try(ctx context.Context) (driver.Grant, error) {
	r, err := e.opening(ctx, e.names.read())
	for {
		if err != nil {
			return driver.Grant{}, e.lost(err)
		}
		if r.Succeeded {
			e.hasPlace()
			return e.take(ctx, r.Header.Revision, r.Header.Revision, false)
		}
		q, err := queueOf(r)
		if err != nil {
			return driver.Grant{}, err
		}
		if own, before := q.find(e.names.place); own != nil {
			return e.found(ctx, own, before, q)
		}
		if !admits(e.place(waiting), q.entries) {
			return driver.Grant{}, e.refuse(&q)
		}
		// Whoever has come since then stands before this request.
		r, err = e.write(ctx,
			[]clientv3.Cmp{e.names.isNew(), e.names.all("<", q.rev+1)},
			e.names.writeFirst(e.place(holding), e.now()),
			[]clientv3.Op{e.names.read()})
		if err != nil {
			return driver.Grant{}, e.lost(err)
		}
	}
}

// found goes on, without waiting, for an owner that has its place already.
func (e *enrolment) found(ctx context.Context, own *entry, before []entry, q queue) (driver.Grant, error) {
	if err := e.adopt(ctx, own); err != nil {
		return driver.Grant{}, err
	}
	if own.stage == waiting && !admits(own.place, before) {
		return driver.Grant{}, e.refuse(&q)
	}
	return e.wait(ctx, q)
}

// refuse answers a request that would not wait.
func (e *enrolment) refuse(q *queue) error {
	e.knock = e.s.refusals.add(e.r.Key, q.token(), time.Now())
	return &driver.HeldError{RetryAfter: q.retryAfter()}
}

// adopt goes on with the place that an earlier copy of the request has taken.
func (e *enrolment) adopt(ctx context.Context, own *entry) error {
	e.create, e.placed = own.create, true
	if own.lease == e.now().id {
		return nil
	}
	e.doubt = true
	e.mu.Lock()
	unused := e.term
	e.term = term{id: own.lease, seconds: unused.seconds, used: true}
	e.mu.Unlock()
	e.s.owe(debt{leases: []clientv3.LeaseID{unused.id}, used: unused.used}, inSeconds(unused.seconds))
	return e.lost(e.prolong(ctx))
}

// lost says what an error means for the place.
func (e *enrolment) lost(err error) error {
	if absent(err) {
		return driver.ErrPlaceLost
	}
	return err
}

// take returns the lease, which the owner's place has become.
func (e *enrolment) take(ctx context.Context, create, token int64, contended bool) (driver.Grant, error) {
	brief := time.NewTimer(firstRenewal)
	select {
	case <-e.late:
	case <-brief.C:
	case <-ctx.Done():
	}
	brief.Stop()
	t := e.now()
	deadline := t.deadline(e.r.TTL)
	if driver.Remaining(deadline, time.Now()) <= 0 {
		return driver.Grant{}, errors.New("etcd: the lease was granted too late to be of use")
	}
	place := e.place(holding)
	place.token = token
	e.s.claims.add(&claim{
		id: e.r.ID, names: e.names, create: create, granted: time.Now(), token: token,
		turning: make(chan struct{}, 1),
		leases:  []clientv3.LeaseID{t.id}, seconds: t.seconds, sent: t.sent, doubt: e.doubt,
		place: place, contended: contended,
	}, e.s.listen)
	return driver.Grant{ID: e.r.ID, Token: token, Deadline: deadline, Contended: contended}, nil
}
