package drivertest

import (
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var keepChecks = []check{
	{"KeepLeavesTheKeyTaken", needs(keeping), keepLeavesTheKeyTaken},
	{"KeepOutlastsTheTTL", needs(keeping), keepOutlastsTheTTL},
	{"KeepThatHasPassedFreesAtOnce", needs(keeping), keepThatHasPassed},
	{"KeptKeyWakesItsWaiterInTime", needs(keeping), keptKeyWakes},
}

func keepLeavesTheKeyTaken(f *fixture) {
	const keep = time.Second
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	f.keeps(l, w, keep)
}

func keepOutlastsTheTTL(f *fixture) {
	a, b := f.process(), f.process()
	for r := f.request(f.key, max(time.Second, f.caps.MinTTL)); ; r = f.longer(r) {
		l := a.brief(r)
		w := b.start(f.patient(), f.waiting(f.key, f.long()))
		keep := l.ttl + 300*time.Millisecond
		e := l.ending()
		e.Keep = keep
		err := a.end(e)[0]
		if err == nil {
			f.kept(l, w, keep)
			return
		}
		if time.Now().Before(l.Deadline) || f.longest(l.ttl) {
			f.t.Fatalf("release of a lease that is held, with Keep %v: %v", keep, err)
		}
		w.granted(f.handOver(), "the waiter's grant after an expiry").drop() // the machine was too slow
	}
}

// keeps ends l, for which w waits, with keep.
func (f *fixture) keeps(l *lease, w *waiter, keep time.Duration) {
	f.t.Helper()
	e := l.ending()
	e.Keep = keep
	for range 2 { // a repeated release changes nothing
		if err := l.p.end(e)[0]; err != nil {
			f.t.Fatalf("release of a lease that is held, with Keep %v: %v", keep, err)
		}
	}
	f.kept(l, w, keep)
}

// kept follows a lease that was released with keep, and for which w waits.
func (f *fixture) kept(l *lease, w *waiter, keep time.Duration) {
	f.t.Helper()
	if err := l.p.renew(l.renewal(f.long()))[0].Err; err == nil {
		f.t.Error("a lease that was released with Keep could be renewed")
	}
	if time.Since(l.sent) < keep/2 {
		if _, err := f.process().try(f.key, f.long()); !isHeld(err) && time.Since(l.sent) < keep {
			f.t.Errorf("a request for a key that is kept returned %v, not a *HeldError", err)
		}
	}
	next := w.granted(keep+f.handOver(), "the waiter's grant after Keep had passed")
	// The store granted l after l.sent, so it may not be free before this.
	if early := keep - next.back.Sub(l.sent); early > 0 {
		f.t.Errorf("the waiter got the key %v before Keep (%v) had passed", early, keep)
	}
	next.holds()
	next.drop()
}

func keepThatHasPassed(f *fixture) {
	const (
		keep = 50 * time.Millisecond
		// A store of several nodes answers when most of them have granted the lease, and
		// the last of them counts from later.
		last = 100 * time.Millisecond
	)
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	f.eventually(keep+last+Slack, "Keep passing", func() bool { return time.Since(l.back) > keep+last })
	e := l.ending()
	e.Keep = keep
	if err := a.end(e)[0]; err != nil {
		f.t.Fatalf("release of a lease that is held, with Keep %v: %v", keep, err)
	}
	if st := f.state(f.key); !same(st, driver.State{Token: st.Token}) {
		f.t.Errorf("after a release with a Keep that has passed, Inspect says %+v", st)
	}
	b.take(f.key, f.long()).drop()
}

// keptKeyWakes goes by the middle of several times, since a machine may be late once.
func keptKeyWakes(f *fixture) {
	const (
		left  = 300 * time.Millisecond // of Keep after the release
		limit = 100 * time.Millisecond
	)
	ps := []*process{f.process(), f.process()}
	l := ps[0].take(f.key, f.long())
	var late []time.Duration
	for i := range 7 {
		w := ps[(i+1)%2].queue(f.key)
		e := l.ending()
		e.Keep = time.Since(l.back) + left
		if err := l.p.end(e)[0]; err != nil {
			f.t.Fatalf("release of a lease that is held, with Keep %v: %v", e.Keep, err)
		}
		next := w.granted(left+f.handOver(), "the waiter's grant after Keep had passed")
		late = append(late, next.back.Sub(l.back.Add(e.Keep)))
		l = next
	}
	l.drop()
	slices.Sort(late)
	if late[len(late)/2] > f.allow(limit) {
		f.t.Errorf("after Keep had passed, waiters got the key late by %v; %v is promised", late, limit)
	}
}
