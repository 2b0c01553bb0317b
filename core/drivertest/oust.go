package drivertest

import (
	"errors"
	"slices"

	"github.com/lockaround/lockaround/core/driver"
)

var oustChecks = []check{
	{"OustEndsEveryLease", needs(ousting), oustEndsEveryLease},
	{"OustServesTheWaiter", needs(ousting), oustServesTheWaiter},
	{"OustSparesWhoCameLater", needs(ousting), oustSparesWhoCameLater},
}

// oust ends the leases of the check's key up to a token.
func (p *process) oust(upTo int64) {
	p.f.t.Helper()
	ctx := p.f.prompt()
	err := within(p.f, promptness+grace+Slack, "oust", func() error { return p.s.Oust(ctx, p.f.key, upTo) })
	if err != nil {
		p.f.t.Fatalf("oust: %v", err)
	}
}

// isLost fails the check unless the lease has ended and its session is told.
func (l *lease) isLost() {
	l.p.f.t.Helper()
	l.told()
	if err := l.p.renew(l.renewal(l.ttl))[0].Err; !errors.Is(err, driver.ErrNotHeld) {
		l.p.f.t.Errorf("renewal of a lease that was taken from its holder returned %v, not ErrNotHeld", err)
	}
	if err := l.release(); !errors.Is(err, driver.ErrNotHeld) {
		l.p.f.t.Errorf("release of a lease that was taken from its holder returned %v, not ErrNotHeld", err)
	}
}

// reached waits until the lease's session has heard of w, which waits for its key: then
// it hears of a loss too.
func (l *lease) reached(told <-chan bool, w *waiter) {
	l.p.f.t.Helper()
	for waiting := false; !waiting; { // false may answer something earlier
		waiting = await(l.p.f, l.p.f.handOver(), "Sink.Contended after another process had queued", told)
	}
	w.stillWaits()
}

// told waits until the session knows that it has lost the lease.
func (l *lease) told() {
	l.p.f.t.Helper()
	l.p.f.eventually(l.p.f.handOver(), "Sink.Lost for a lease that was taken from its holder", func() bool { return l.p.sink.told(l.ID) })
}

func oustEndsEveryLease(f *fixture) {
	all := []*lease{f.process().take(f.key, f.long())}
	if slices.Contains(f.caps.Modes, driver.Shared) {
		all[0].drop()
		all = []*lease{f.process().takeAs(read), f.process().takeAs(read), f.process().takeAs(read)}
	}
	var told []<-chan bool
	for _, l := range all {
		told = append(told, l.p.sink.contention(l.ID))
	}
	w := f.process().queue(f.key)
	for i, l := range all {
		l.reached(told[i], w)
	}
	w.cancel()
	if _, err := w.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a waiter was granted a key that others hold")
	}
	f.eventually(f.cleanUp(), "the place of a waiter that has withdrawn ending", func() bool { return f.state(f.key).Waiting == 0 })
	operator := f.process()
	operator.oust(f.state(f.key).Token)
	if st := f.state(f.key); st.Held || st.Waiting != 0 {
		f.t.Errorf("after an oust, Inspect says %+v", st)
	}
	for _, l := range all {
		l.isLost()
	}
	next := f.process().take(f.key, f.long())
	next.rises(all[len(all)-1].Token, "of a lease that was taken from its holder")
	next.drop()
}

func oustServesTheWaiter(f *fixture) {
	a, b, operator := f.process(), f.process(), f.process()
	r := f.request(f.key, f.long())
	l, err := a.acquire(f.patient(), r)
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	told := a.sink.contention(l.ID)
	w := b.queue(f.key)
	l.reached(told, w)
	operator.oust(l.Token)
	next := w.granted(f.handOver(), "the waiter's grant after an oust")
	next.rises(l.Token, "of a lease that was taken from its holder")
	next.holds()
	l.told()
	next.drop()
	if _, err := a.acquire(f.prompt(), r); err == nil {
		f.t.Error("an owner whose lease was taken from it was granted the key again")
	}
	l.isLost()
}

func oustSparesWhoCameLater(f *fixture) {
	a, b, operator := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	for range 2 {
		operator.oust(l.Token)
	}
	next := b.take(f.key, f.long())
	operator.oust(l.Token) // as after a lost reply
	next.holds()
	next.drop()
	operator.oust(next.Token) // of a key that nobody holds
	a.take(f.key, f.long()).drop()
}
