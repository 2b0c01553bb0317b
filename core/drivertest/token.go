package drivertest

import (
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var tokenChecks = []check{
	{"TokensRise", needs(issuingTokens), tokensRise},
	{"TokensAreIssuedAtGrant", needs(queueing, issuingTokens), tokensAreIssuedAtGrant},
	{"TokensAreIssuedAtGrantThoughRepliesAreLate", needs(issuingTokens, delaying, aWayPast), tokensAreIssuedAtGrantThoughLate},
	{"TokensRiseAcrossRestart", needs(issuingTokens, restarting), tokensRiseAcrossRestart},
	{"TokensRiseAcrossLossOfData", needs(issuingTokens, wiping), tokensRiseAcrossWipe},
}

func isHeld(err error) bool {
	var held *driver.HeldError
	return errors.As(err, &held)
}

// rises fails the check unless the lease's token is larger than every earlier
// one, and returns it.
func (l *lease) rises(last int64, after string) int64 {
	l.p.f.t.Helper()
	if l.Token <= last {
		l.p.f.t.Fatalf("token %d was granted after token %d, %s", l.Token, last, after)
	}
	return l.Token
}

func tokensRise(f *fixture) {
	a, b := f.process(), f.process()
	var last int64
	for range 3 {
		l := a.take(f.key, f.long())
		last = l.rises(last, "after a release")
		w := b.queue(f.key)
		l.drop()
		l = w.granted(f.handOver(), "the waiter's grant after a release")
		last = l.rises(last, "by hand-over to a waiter")
		if r := l.renew(f.long()); r.Err != nil {
			f.t.Fatalf("renewal of a lease that is held: %v", r.Err)
		}
		l.drop()
	}
	l := a.takeBriefly()
	last = l.rises(last, "after a release")
	f.free(f.key, l.ttl+f.handOver())
	l = b.take(f.key, f.long())
	l.rises(last, "after an expiry")
	l.drop()
}

func tokensAreIssuedAtGrant(f *fixture) {
	a := f.process()
	l := a.take(f.key, f.long())
	first, second := f.process().queue(f.key), f.process().queue(f.key)
	for range 2 {
		if st := f.state(f.key); !f.inspected(st.Token, l) {
			f.t.Fatalf("the holder has token %d; with waiters in the queue the latest grant has token %d", l.Token, st.Token)
		}
		l.holds()
	}
	// The first leaves, the holder takes the key anew and is behind the second.
	first.cancel()
	if _, err := first.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
	}
	third := a.start(f.patient(), replacing(f.waiting(f.key, f.long()), l))
	last := l.Token
	l = second.granted(f.handOver(), "the waiter's grant after the holder's turn")
	last = l.rises(last, "by hand-over to a waiter")
	if st := f.state(f.key); !f.inspected(st.Token, l) {
		f.t.Fatalf("the holder has token %d; with a waiter in the queue the latest grant has token %d", l.Token, st.Token)
	}
	l.drop()
	l = third.granted(f.handOver(), "the waiter's grant after a release")
	l.rises(last, "by hand-over to a waiter")
	l.drop()
}

// tokensAreIssuedAtGrantThoughLate makes one process slow between asking and
// being granted, while others come and go.
func tokensAreIssuedAtGrantThoughLate(f *fixture) {
	const delay = 200 * time.Millisecond
	slow, quick := f.process(), f.peer()
	restore := f.delayReplies(delay)
	w := slow.start(f.patient(), f.waiting(f.key, f.long()))
	var last int64
	for len(w.done) == 0 {
		l, err := quick.try(f.key, f.long())
		if err != nil {
			if !isHeld(err) {
				f.t.Fatalf("acquire: %v", err)
			}
			break // the slow one has been granted
		}
		last = l.rises(last, "after a release")
		l.drop()
		yield()
	}
	l := w.granted(patience, "the slow acquire")
	l.rises(last, "to a process whose replies are late")
	restore()
	l.holds()
	l.drop()
}

func tokensRiseAcrossRestart(f *fixture) {
	a, b := f.process(), f.process()
	var last int64
	for range 2 {
		l := a.take(f.key, f.long())
		last = l.rises(last, "after a release")
		l.drop()
		f.h.Restart()
		f.takeAfterOutage(b, &last, "after a restart")
	}
}

func tokensRiseAcrossWipe(f *fixture) {
	a, b := f.process(), f.process()
	var last int64
	for range 2 {
		for range 3 {
			l := a.take(f.key, f.long())
			last = l.rises(last, "after a release")
			l.drop()
		}
		f.h.Wipe()
		f.takeAfterOutage(b, &last, "after the store lost its data")
		f.takeAfterOutage(a, &last, "after the store lost its data")
	}
}

// takeAfterOutage takes and releases the key, and tolerates that the first
// attempts meet connections that have been closed.
func (f *fixture) takeAfterOutage(p *process, last *int64, after string) {
	f.t.Helper()
	var l *lease
	f.eventually(f.cleanUp(), "an acquire "+after, func() bool {
		var err error
		l, err = p.try(f.key, f.long())
		return err == nil
	})
	*last = l.rises(*last, after)
	l.drop()
}
