package drivertest

import (
	"errors"

	"github.com/lockaround/lockaround/core/driver"
)

var lowerChecks = []check{
	{"LoweredLeaseLetsSharersIn", needs(sharing), loweredLetsSharersIn},
	{"LoweredLeaseKeepsWritersOut", needs(sharing), loweredKeepsWritersOut},
	{"LoweringALostLeaseCreatesNone", needs(sharing), loweringCreatesNone},
	{"LoweringSurvivesALostReply", needs(sharing, dropping), loweringSurvivesALostReply},
}

// lower turns an exclusive lease into a share.
func (l *lease) lower() driver.Renewed {
	l.p.f.t.Helper()
	r := l.renewal(l.p.f.long())
	r.Share = true
	return l.p.renew(r)[0]
}

// lowers does so with a lease that is held.
func (l *lease) lowers() {
	l.p.f.t.Helper()
	if err := l.lower().Err; err != nil {
		l.p.f.t.Fatalf("lowering a lease that is held: %v", err)
	}
}

func loweredLetsSharersIn(f *fixture) {
	l := f.process().takeAs(write)
	waiting := []*waiter{f.process().queueAs(read), f.process().queueAs(read)}
	for _, w := range waiting {
		w.stillWaits()
	}
	l.lowers()
	var all []*lease
	for _, w := range waiting {
		all = append(all, w.granted(f.handOver(), "the grant to a reader after the writer's lease was lowered"))
	}
	all = append(all, f.process().takeAs(read))
	for range 2 { // what is lowered stays so
		l.lowers()
	}
	for _, l := range append(all, l) {
		l.lives()
		l.drop()
	}
	f.process().takeAs(write).drop()
}

func loweredKeepsWritersOut(f *fixture) {
	a, b := f.process(), f.process()
	l := a.takeAs(write)
	w := b.queueAs(write)
	l.lowers()
	w.stillWaits()
	l.lives()
	b.refusedAs(write, "beside a lease that was lowered")
	if st := f.state(f.key); st.Waiting != 1 {
		f.t.Errorf("with a writer that waits for a lease that was lowered, Inspect says %+v", st)
	}
	w.stillWaits()
	l.drop()
	w.granted(f.handOver(), "the writer's grant after the release of a lease that was lowered").drop()
}

func loweringCreatesNone(f *fixture) {
	a, b := f.process(), f.process()
	l := a.takeAs(write)
	l.drop()
	if err := l.lower().Err; !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("lowering a lease that was released returned %v, not ErrNotHeld", err)
	}
	next := b.takeAs(write)
	if err := l.lower().Err; !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("lowering a lease that another one follows returned %v, not ErrNotHeld", err)
	}
	a.refusedAs(read, "beside a writer, after an older lease was lowered")
	next.holds()
	next.drop()
}

func loweringSurvivesALostReply(f *fixture) {
	a, b := f.process(), f.peer()
	l := a.takeAs(write)
	dropped := f.dropReply(OpRenew)
	if err := l.lower().Err; errors.Is(err, driver.ErrNotHeld) {
		f.t.Fatal("a lowering whose first reply was lost reported its lease as not held")
	}
	dropped()
	l.lowers() // as who has no answer repeats it
	other := b.takeAs(read)
	l.lives()
	l.drop()
	other.drop()
	b.takeAs(write).drop()
}
