package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var ownerChecks = []check{
	{"AcquireIsIdempotent", nil, acquireIsIdempotent},
	{"AcquireSurvivesALostReply", needs(dropping), acquireSurvivesALostReply},
	{"ReleasedOwnerIsNeverGrantedAgain", nil, releasedOwnerIsBurnt},
	{"ExpiredOwnerIsNeverGrantedAgain", nil, expiredOwnerIsBurnt},
	{"WithdrawnOwnerIsNeverGranted", nil, withdrawnOwnerIsBurnt},
	{"ForeignOwnerChangesNothing", nil, foreignOwnerChangesNothing},
}

func acquireIsIdempotent(f *fixture) {
	a, b := f.process(), f.process()
	for _, wait := range []bool{false, true} {
		r := f.request(f.key, f.long())
		r.Wait = wait
		first, err := a.acquire(f.patient(), r)
		if err != nil {
			f.t.Fatalf("acquire of a free key: %v", err)
		}
		again, err := a.acquire(f.patient(), r)
		if err != nil {
			f.t.Fatalf("acquire repeated by the owner that holds the key (wait %v): %v", wait, err)
		}
		if again.ID != first.ID || again.Token != first.Token {
			f.t.Fatalf("acquire repeated by its owner is another grant: token %d, then %d", first.Token, again.Token)
		}
		again.holds()
		if _, err := b.try(f.key, f.long()); err == nil {
			f.t.Fatal("a key whose acquire was repeated went to a second owner")
		}
		again.drop()
		if f.state(f.key).Held {
			f.t.Fatal("one release did not end a lease whose acquire was repeated")
		}
	}
}

func acquireSurvivesALostReply(f *fixture) {
	for _, wait := range []bool{false, true} {
		p, other := f.process(), f.peer()
		_ = p.ping() // so that connections exist
		dropped := f.dropReply(OpAcquire)
		r := f.request(f.key, f.long())
		r.Wait = wait
		l, err := p.acquire(f.patient(), r)
		dropped()
		var held *driver.HeldError
		switch {
		case errors.As(err, &held):
			f.t.Fatal("an acquire whose first reply was lost found the key held by itself")
		case err == nil:
			l.holds()
			l.drop()
		}
		f.takeSoon(other)
	}
}

// takeSoon takes the key although an owner that was given up may still be in
// the store, and releases it.
func (f *fixture) takeSoon(p *process) {
	f.t.Helper()
	limit := f.cleanUp()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	res := within(f, limit+grace+Slack, "acquire", func() (res result) {
		for ctx.Err() == nil {
			if res.lease, res.err = acquireAnew(ctx, p, f.waiting(f.key, f.long())); res.err == nil {
				break
			}
			yield() // its connection may have been closed meanwhile
		}
		return res
	})
	if res.err != nil {
		f.t.Fatalf("an owner that was given up still had the key or its place %v later: %v; Inspect says %+v", limit, res.err, f.state(f.key))
	}
	res.lease.holds()
	res.lease.drop()
}

// noGhost fails the check if p, whose store was silent, has left an owner there.
// A request that the silence has held up may be executed at any time after it;
// a ping lets it go first.
func (f *fixture) noGhost(p, other *process) {
	f.t.Helper()
	for range 3 {
		_ = p.ping() // which may meet a broken connection
		f.takeSoon(other)
	}
}

func releasedOwnerIsBurnt(f *fixture) {
	p := f.process()
	r := f.request(f.key, f.long())
	l, err := p.acquire(f.patient(), r)
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	l.drop()
	f.refuse(p, r, "after its release")
	// The same when somebody else has had the key in between.
	f.process().take(f.key, f.long()).drop()
	f.refuse(p, r, "after its release and another's lease")
}

func expiredOwnerIsBurnt(f *fixture) {
	p := f.process()
	l := p.takeBriefly()
	w := f.process().start(f.patient(), f.waiting(f.key, f.long()))
	next := w.granted(l.ttl+f.handOver(), "the grant after an expiry")
	next.drop()
	f.refuse(p, driver.Request{ID: l.ID, TTL: l.ttl}, "after its expiry")
}

func withdrawnOwnerIsBurnt(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	r := f.waiting(f.key, f.long())
	w := b.enqueue(r)
	w.cancel()
	if _, err := w.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
	}
	f.eventually(f.cleanUp(), "a cancelled wait leaving the queue", func() bool { return f.state(f.key).Waiting == 0 })
	l.drop()
	f.refuse(b, r, "after its withdrawal")
}

// refuse repeats a request whose owner is burnt, as a client library may do
// long after, and fails the check if it changes anything.
func (f *fixture) refuse(p *process, r driver.Request, when string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := p.acquire(ctx, r); err == nil {
		f.t.Fatalf("an owner was granted the key again %s", when)
	}
	f.takeSoon(f.process())
}

func foreignOwnerChangesNothing(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := f.process().queue(f.key)
	foreign := l.ending()
	foreign.Owner = owner()
	b.end(foreign)
	l.holds()
	w.stillWaits()
	renewal := l.renewal(10 * f.long())
	renewal.Owner = foreign.Owner
	if err := b.renew(renewal)[0].Err; !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("renewal by an owner that holds nothing returned %v, not ErrNotHeld", err)
	}
	if st := f.state(f.key); st.Remaining > 2*f.long() {
		f.t.Errorf("a foreign owner prolonged the lease to %v", st.Remaining)
	}
	l.holds()
	w.stillWaits()
	l.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
	// Nor does it create anything on a free key.
	b.renew(renewal)
	b.end(foreign)
	if st := f.state(f.key); st.Held || st.Waiting != 0 {
		f.t.Errorf("a foreign owner turned a free key into %+v", st)
	}
}
