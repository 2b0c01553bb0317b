package drivertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var refusalChecks = []check{
	{"StoresRefusalIsToldWithItsCause", needs(refusing), storesRefusalIsToldWithItsCause},
}

// storesRefusalIsToldWithItsCause has each kind of call made while the store refuses, as an engine
// makes it: one that does not wait for the store timeout, one that waits for as long as it takes. A
// call may go on trying, but why it has not succeeded is known by the end of the store timeout.
func storesRefusalIsToldWithItsCause(f *fixture) {
	p := f.process()
	l, m := p.take(f.key, f.long()), p.take(f.key+":other", f.long())
	cause, restore := f.h.Refuse()
	restore = f.undone(restore)
	names := func(err error) bool { return err != nil && strings.Contains(err.Error(), cause) }

	began := time.Now()
	timeout, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	calls := map[string]func() error{
		"Ping":    func() error { return p.s.Ping(timeout) },
		"Renew":   func() error { return errors.Join(errsOf(p.s.Renew(timeout, []driver.Renewal{l.renewal(f.long())}))...) },
		"Release": func() error { return errors.Join(p.s.Release(timeout, []driver.Ending{m.ending()})...) },
		"Inspect": func() error { _, err := p.s.Inspect(timeout, f.key); return err },
	}
	type outcome struct {
		call string
		err  error
	}
	outcomes := make(chan outcome, len(calls))
	for call, do := range calls {
		go func() { outcomes <- outcome{call, do()} }()
	}
	first := p.start(timeout, f.request(f.key+":free", f.long()))
	waits := p.start(context.Background(), f.waiting(f.key+":also free", f.long()))
	for what, w := range map[string]*waiter{"that does not wait": first, "that waits": waits} {
		var ended *result
		f.eventually(max(0, f.timeout-time.Since(began)), "the cause of a refusal being told of an acquire "+what, func() bool {
			select {
			case res := <-w.done:
				ended = &res
			default:
			}
			return ended != nil || names(p.sink.failure(w.id))
		})
		switch {
		case ended != nil && ended.err == nil:
			f.t.Fatalf("an acquire %s was granted while the store was to refuse", what)
		case ended != nil && !names(ended.err):
			f.t.Errorf("acquire %s while the store refuses: %v; want %q in it", what, ended.err, cause)
		}
		w.cancel()
	}
	for range calls {
		o := await(f, f.timeout+grace+Slack, "some call while the store refuses", outcomes)
		switch { // what a store allows all the same is its own
		case errors.Is(o.err, driver.ErrNotHeld):
			f.t.Errorf("%s: ErrNotHeld while the store refuses; it was not asked", o.call)
		case o.err != nil && !names(o.err):
			f.t.Errorf("%s while the store refuses: %v; want %q in it", o.call, o.err, cause)
		}
	}
	restore()
	f.eventually(f.cleanUp(), "a renewal after the store no longer refuses", func() bool {
		err := l.renew(f.long()).Err
		if errors.Is(err, driver.ErrNotHeld) {
			f.t.Fatal("a lease was lost although its store refused for a moment only")
		}
		return err == nil
	})
	l.drop()
}

func errsOf(rs []driver.Renewed) (errs []error) {
	for _, r := range rs {
		errs = append(errs, r.Err)
	}
	return errs
}
