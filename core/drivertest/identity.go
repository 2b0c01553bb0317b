package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var identityChecks = []check{
	{"HolderIsNamed", needs(naming), holderIsNamed},
	{"RefusalNamesTheHolder", needs(naming), refusalNamesTheHolder},
	{"WaiterLearnsWhoHolds", needs(naming), waiterLearnsWhoHolds},
	{"HoldersTogetherAreNamedEach", needs(naming, sharing), holdersTogetherAreNamed},
	{"KeptKeyIsNobodys", needs(naming, keeping), keptKeyIsNobodys},
	{"TraceOfTheRequestIsTold", needs(naming, tracing), traceIsTold},
	{"HoldersTogetherHaveNoTraceButTheirOwn", needs(naming, tracing, sharing), sharersHaveTheirOwnTraces},
	{"TraceOfAnEarlierHolderIsNotTold", needs(naming, tracing), earlierTraceIsNotTold},
}

var (
	naming  = need{"Capabilities.Identity", false, func(f *fixture) bool { return f.caps.Identity }}
	tracing = need{"Capabilities.Trace", false, func(f *fixture) bool { return f.caps.Trace }}
)

// longIdentity is as long as one may be, and has every kind of byte that one may have.
var longIdentity = "shop/orders_7f9c@host.example:8080+blue=1,#2~%3-" + strings.Repeat("x", driver.MaxIdentity-48)

// called opens a session of that name.
func (f *fixture) called(identity string) *process {
	f.t.Helper()
	return f.openAs(f.h.Driver, f.timeout, identity)
}

// holders returns who holds the check's key, the first granted first.
func (f *fixture) holders() []driver.Origin {
	f.t.Helper()
	st := f.state(f.key)
	slices.SortFunc(st.Holders, func(a, b driver.Holder) int { return int(a.Token - b.Token) })
	var all []driver.Origin
	for _, h := range st.Holders {
		all = append(all, h.Origin)
	}
	return all
}

// mustBeHeldBy fails the check unless Inspect names these holders.
func (f *fixture) mustBeHeldBy(when string, want ...driver.Origin) {
	f.t.Helper()
	if got := f.holders(); !slices.EqualFunc(got, want, driver.Origin.Same) {
		f.t.Errorf("%s, Inspect names %v, want %v", when, named(got), named(want))
	}
}

func named(all []driver.Origin) (text []string) {
	for _, o := range all {
		t := "untraced"
		if o.Trace != nil {
			t = "traced"
		}
		text = append(text, o.Identity+" "+t)
	}
	return text
}

// refusedBy returns who is said to hold the key in the refusal of a request that would not wait.
func (p *process) refusedBy(key string) driver.Origin {
	p.f.t.Helper()
	_, err := p.try(key, p.f.long())
	var held *driver.HeldError
	if !errors.As(err, &held) {
		p.f.t.Fatalf("a request for a held key that would not wait returned %v, not a *HeldError", err)
	}
	if text := held.Error(); held.Holder.Identity != "" && strings.Contains(text, held.Holder.Identity) {
		p.f.t.Errorf("the text %q of the error, which clients may see, names the holder", text)
	}
	return held.Holder
}

// trace returns one that nobody has used. Its bytes are any.
func trace() *driver.Trace {
	t := &driver.Trace{Flags: 1}
	_, _ = rand.Read(t.TraceID[:]) // never fails: crypto/rand ends the program instead
	_, _ = rand.Read(t.SpanID[:])
	t.TraceID[0], t.SpanID[7] = 0, ':' // what a format might stumble on
	return t
}

func holderIsNamed(f *fixture) {
	a, b, c := f.called("orders-1"), f.called(longIdentity), f.process()
	l := a.take(f.key, f.long())
	f.mustBeHeldBy("after a grant", driver.Origin{Identity: "orders-1"})
	l.holds()
	f.mustBeHeldBy("after a renewal", driver.Origin{Identity: "orders-1"})
	w := b.queue(f.key)
	f.mustBeHeldBy("while another process waits", driver.Origin{Identity: "orders-1"})
	l.drop()
	l = w.granted(f.handOver(), "the waiter's grant after a release")
	f.mustBeHeldBy("after a hand-over", driver.Origin{Identity: longIdentity})
	next := f.request(f.key, f.long())
	end := l.ending()
	next.Replace = &end
	l, err := b.acquire(f.patient(), next)
	if err != nil {
		f.t.Fatalf("replacing a lease when nobody waits: %v", err)
	}
	f.mustBeHeldBy("after a replacement", driver.Origin{Identity: longIdentity})
	l.drop()
	f.mustBeHeldBy("after a release")
	l = c.take(f.key, f.long())
	f.mustBeHeldBy("of a process without a name", driver.Origin{})
	l.drop()
}

func refusalNamesTheHolder(f *fixture) {
	a, b := f.called("orders-1"), f.called("orders-2")
	l := a.take(f.key, f.long())
	for _, p := range []*process{a, b} {
		if got := p.refusedBy(f.key); !got.Same(driver.Origin{Identity: "orders-1"}) {
			f.t.Errorf("the refusal names %+v", got)
		}
	}
	w := b.queue(f.key)
	if got := b.refusedBy(f.key); got.Identity != "orders-1" {
		f.t.Errorf("while others wait, the refusal names %+v", got)
	}
	l.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

func waiterLearnsWhoHolds(f *fixture) {
	a, b, c := f.called("orders-1"), f.called("orders-2"), f.process()
	l := a.take(f.key, f.long())
	for _, p := range []*process{a, b, c} {
		w := p.queue(f.key) // returns when the sink has heard that it waits
		if got := p.sink.takenBy(w.id); got.Identity != "orders-1" {
			f.t.Errorf("a waiter is told that %+v holds the key", got)
		}
		w.cancel()
		if _, err := w.ended(grace+Slack, "a wait that was cancelled"); err == nil {
			f.t.Fatal("a waiter was granted a key that is held")
		}
	}
	l.drop()
}

func holdersTogetherAreNamed(f *fixture) {
	a, b, c := f.called("orders-1"), f.called("orders-2"), f.called("orders-3")
	first, second := a.takeAs(read), b.takeAs(read)
	one, two := driver.Origin{Identity: "orders-1"}, driver.Origin{Identity: "orders-2"}
	f.mustBeHeldBy("with two who share the key", one, two)
	writer := f.request(f.key, f.long())
	if _, err := c.acquire(f.prompt(), writer); !isHeld(err) {
		f.t.Fatalf("a writer beside readers: %v", err)
	} else if held := new(driver.HeldError); errors.As(err, &held) && held.Holder.Identity != "orders-1" && held.Holder.Identity != "orders-2" {
		f.t.Errorf("the refusal names %+v", held.Holder)
	}
	first.drop()
	f.mustBeHeldBy("after the first of two has released", two)
	second.drop()
}

func keptKeyIsNobodys(f *fixture) {
	a, b := f.called("orders-1"), f.called("orders-2")
	l := a.take(f.key, f.long())
	e := l.ending()
	e.Keep = time.Hour
	if err := a.end(e)[0]; err != nil {
		f.t.Fatalf("release with Keep: %v", err)
	}
	f.mustBeHeldBy("of a key that is kept for nobody", driver.Origin{})
	// A store of several nodes has released when most of them have: the others name a's lease
	// for a moment more.
	f.eventually(grace+Slack, "a refusal that does not name who has released", func() bool { return !b.refusedBy(f.key).Known() })
}

func traceIsTold(f *fixture) {
	a, b, c := f.called("orders-1"), f.called("orders-2"), f.process()
	r := f.request(f.key, f.long())
	r.Trace = trace()
	l, err := a.acquire(f.prompt(), r)
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	want := driver.Origin{Identity: "orders-1", Trace: r.Trace}
	f.mustBeHeldBy("after a grant", want)
	l.holds()
	f.mustBeHeldBy("after a renewal", want)
	if got := c.refusedBy(f.key); !got.Same(want) {
		f.t.Errorf("the refusal names %v, want %v", named([]driver.Origin{got}), named([]driver.Origin{want}))
	}
	next := f.waiting(f.key, f.long())
	next.Trace = trace()
	w := b.enqueue(next)
	if got := b.sink.takenBy(w.id); !got.Same(want) {
		f.t.Errorf("a waiter is told of %v, want %v", named([]driver.Origin{got}), named([]driver.Origin{want}))
	}
	f.mustBeHeldBy("while another process waits", want)
	l.drop()
	l = w.granted(f.handOver(), "the waiter's grant after a release")
	want = driver.Origin{Identity: "orders-2", Trace: next.Trace}
	f.mustBeHeldBy("after a hand-over", want)
	if got := c.refusedBy(f.key); !got.Same(want) {
		f.t.Errorf("after a hand-over the refusal names %v", named([]driver.Origin{got}))
	}
	end, again := l.ending(), f.request(f.key, f.long())
	again.Replace, again.Trace = &end, trace()
	if l, err = b.acquire(f.patient(), again); err != nil {
		f.t.Fatalf("replacing a lease when nobody waits: %v", err)
	}
	f.mustBeHeldBy("after a replacement", driver.Origin{Identity: "orders-2", Trace: again.Trace})
	l.drop()
}

// sharersHaveTheirOwnTraces allows for a store that has room for the trace of one holder only.
func sharersHaveTheirOwnTraces(f *fixture) {
	a, b := f.called("orders-1"), f.called("orders-2")
	var want []driver.Origin
	var leases []*lease
	for i, p := range []*process{a, b, b} {
		r := f.as(read)
		if i < 2 {
			r.Trace = trace()
		}
		l, err := p.acquire(f.patient(), r)
		if err != nil {
			f.t.Fatalf("sharing a key: %v", err)
		}
		want, leases = append(want, driver.Origin{Identity: []string{"orders-1", "orders-2", "orders-2"}[i], Trace: r.Trace}), append(leases, l)
	}
	for ; len(leases) > 0; leases, want = leases[1:], want[1:] {
		got := f.holders()
		if len(got) != len(want) {
			f.t.Fatalf("with %d who share the key, Inspect names %v", len(want), named(got))
		}
		for i := range got {
			if got[i].Trace != nil && !got[i].Same(want[i]) {
				f.t.Errorf("a holder has the trace of another one")
			}
		}
		leases[0].drop()
	}
}

func earlierTraceIsNotTold(f *fixture) {
	a, b := f.called("orders-1"), f.called("orders-2")
	r := f.request(f.key, f.long())
	r.Trace = trace()
	l, err := a.acquire(f.prompt(), r)
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	w := b.queue(f.key)
	l.drop()
	l = w.granted(f.handOver(), "the waiter's grant after a release")
	f.mustBeHeldBy("of a waiter that was not traced", driver.Origin{Identity: "orders-2"})
	l.drop()
	l = a.take(f.key, f.long())
	f.mustBeHeldBy("of a request that was not traced, after one that was", driver.Origin{Identity: "orders-1"})
	l.drop()
}

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
