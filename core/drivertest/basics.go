package drivertest

import (
	"errors"
	"reflect"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var basicChecks = []check{
	{"CapabilitiesAreSaneAndConstant", nil, capabilitiesAreSane},
	{"PingSucceeds", nil, pingSucceeds},
	{"GrantIsComplete", nil, grantIsComplete},
	{"InspectChangesNothing", nil, inspectChangesNothing},
	{"HeldKeyIsRefusedAtOnce", nil, heldKeyIsRefused},
	{"GrantOutlivesItsContext", nil, grantOutlivesItsContext},
}

func capabilitiesAreSane(f *fixture) {
	c := f.caps
	if c.Name == "" {
		f.t.Error("Name is empty; telemetry and errors need one")
	}
	if len(c.Modes) == 0 {
		f.t.Error("Modes is empty; a driver grants at least one")
	}
	seen := make(map[driver.Mode]bool)
	for _, m := range c.Modes {
		if m > driver.Semaphore {
			f.t.Errorf("Modes holds %d, which is no mode", m)
		}
		if seen[m] {
			f.t.Errorf("Modes holds %v twice", m)
		}
		seen[m] = true
	}
	if c.MinTTL <= 0 {
		f.t.Errorf("MinTTL is %v; a TTL of nothing is never possible", c.MinTTL)
	}
	if driver.Margin(c.MinTTL) >= c.MinTTL {
		f.t.Errorf("MinTTL is %v, of which a margin of %v leaves nothing", c.MinTTL, driver.Margin(c.MinTTL))
	}
	if c.Tokens > driver.DurableTokens {
		f.t.Errorf("Tokens is %d, which is no strength", c.Tokens)
	}
	if c.Wake <= 0 {
		f.t.Errorf("Wake is %v; a wake-up may be lost, so a bound is needed", c.Wake)
	}
	if again := f.h.Driver.Capabilities(); !reflect.DeepEqual(c, again) {
		f.t.Errorf("Capabilities changed from %+v to %+v", c, again)
	}
	p := f.process()
	p.take(f.key, f.long()).drop()
	if again := f.h.Driver.Capabilities(); !reflect.DeepEqual(c, again) {
		f.t.Errorf("Capabilities changed from %+v to %+v", c, again)
	}
}

func pingSucceeds(f *fixture) {
	if err := f.process().ping(); err != nil {
		f.t.Errorf("ping of a store that answers: %v", err)
	}
}

func grantIsComplete(f *fixture) {
	p := f.process()
	if st := f.state(f.key); !same(st, driver.State{}) {
		f.t.Errorf("a key that was never used is %+v, not the zero State", st)
	}
	r := f.request(f.key, f.long())
	l, err := p.acquire(f.patient(), r)
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	if l.ID != r.ID {
		f.t.Error("the grant does not carry the ID of its request")
	}
	if f.caps.Tokens == driver.NoTokens && l.Token != 0 {
		f.t.Errorf("token %d from a driver that says NoTokens", l.Token)
	}
	if f.caps.Tokens != driver.NoTokens && (l.Token < 1 || l.Token > 1<<53-1) {
		f.t.Errorf("token %d is outside 1 to 2^53-1", l.Token)
	}
	if l.Contended {
		f.t.Error("Contended, but nobody else waits")
	}
	if f.onTheWall(l.Deadline) {
		f.t.Error("Deadline carries no monotonic reading, so a clock that is set back prolongs the lease")
	}
	st := f.state(f.key)
	if !st.Held || st.Waiting != 0 || !f.inspected(st.Token, l) || st.Remaining <= 0 || st.Remaining > f.long()+time.Millisecond {
		f.t.Errorf("after a grant of %v with token %d, Inspect says %+v", f.long(), l.Token, st)
	}
	l.drop()
	if st := f.state(f.key); st.Held || st.Remaining != 0 {
		f.t.Errorf("after the release, Inspect says %+v", st)
	}
}

func inspectChangesNothing(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	for range 3 {
		if st := f.state(f.key); !st.Held || st.Waiting != f.places(1) {
			f.t.Fatalf("with a holder and a waiter, Inspect says %+v", st)
		}
	}
	w.stillWaits()
	l.holds()
	l.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

func heldKeyIsRefused(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	for _, p := range []*process{a, b} {
		start := time.Now()
		_, err := p.acquire(f.prompt(), f.request(f.key, f.long()))
		if took := time.Since(start); took > f.allow(Slack) {
			f.t.Errorf("a request that would not wait took %v", took)
		}
		var held *driver.HeldError
		if !errors.As(err, &held) {
			f.t.Fatalf("a request for a held key that would not wait returned %v, not a *HeldError", err)
		}
		if held.RetryAfter < 0 || held.RetryAfter > f.long()+time.Millisecond {
			f.t.Errorf("RetryAfter is %v, but the lease lasts %v at most", held.RetryAfter, f.long())
		}
	}
	if st := f.state(f.key); st.Waiting != 0 {
		f.t.Errorf("requests that would not wait left %d places in the queue", st.Waiting)
	}
	l.holds()
	l.drop()
	b.take(f.key, f.long()).drop()
}

func grantOutlivesItsContext(f *fixture) {
	a, b := f.process(), f.process()
	for _, wait := range []bool{false, true} {
		r := f.request(f.key, f.long())
		r.Wait = wait
		w := a.start(f.patient(), r)
		l := w.granted(patience, "acquire of a free key")
		w.cancel()
		for cancelled := time.Now(); time.Since(cancelled) < driver.Promptness; yield() { // it would be seen to in the background
			if _, err := b.try(f.key, f.long()); err == nil {
				f.t.Fatal("a lease ended with the context of its acquisition")
			}
		}
		l.holds()
		l.drop()
	}
}
