package drivertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var silenceChecks = []check{
	{"OpenDoesNoIO", needs(stalling), openDoesNoIO},
	{"SilentStoreDelaysNoCall", needs(stalling), silentStoreDelaysNoCall},
	{"SilentStoreEndsEachAttempt", needs(stalling), silentStoreEndsEachAttempt},
	{"SessionWorksOnAfterSilence", needs(stalling), sessionWorksOnAfterSilence},
}

func openDoesNoIO(f *fixture) {
	type answer struct {
		s   driver.Session
		err error
	}
	resume := f.stall()
	a := within(f, Slack, "opening a session while the store is silent", func() answer {
		s, err := f.h.Driver.Open(driver.Config{Sink: newSink(), StoreTimeout: f.timeout})
		return answer{s, err}
	})
	resume()
	if a.err != nil {
		f.t.Fatalf("opening a session while the store is silent: %v", a.err)
	}
	p := f.adopt(a.s, newSink())
	p.take(f.key, f.long()).drop()
}

// silentStoreDelaysNoCall ends the context of every kind of call while the
// store is silent. Every call must return 50 ms later; the quickest of three of
// a kind shows what the driver adds, the slowest is granted the machine's Slack.
// The three end one after the other, so that a machine that stands still for a
// moment does not hit all.
func silentStoreDelaysNoCall(f *fixture) {
	const (
		tries = 3
		// In the quickest of three, so much is the machine's.
		jitter = 150 * time.Millisecond
		first  = 150 * time.Millisecond
		apart  = 200 * time.Millisecond
		last   = first + (tries-1)*apart
	)
	ends := map[string]func(time.Duration) (context.Context, context.CancelFunc){
		"deadline": func(after time.Duration) (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), after)
		},
		"cancel": func(after time.Duration) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			stop := time.AfterFunc(after, cancel)
			return ctx, func() { stop.Stop(); cancel() }
		},
	}
	// The attempts themselves would go on for far longer.
	p := f.open(f.h.Driver, time.Minute)
	q := f.open(f.h.Driver, time.Minute)
	l := p.take(f.key, f.long())
	queued := make(map[string][]*waiter)
	for how := range ends {
		for range tries {
			queued[how] = append(queued[how], q.queue(f.key))
		}
	}
	calls := map[string]func(context.Context, string, int) error{
		"Ping": func(ctx context.Context, _ string, _ int) error { return p.s.Ping(ctx) },
		"Acquire that does not wait": func(ctx context.Context, _ string, _ int) error {
			_, err := p.s.Acquire(ctx, f.request(f.key+":free", f.long()))
			return err
		},
		"Acquire that waits": func(ctx context.Context, _ string, _ int) error {
			_, err := p.s.Acquire(ctx, f.waiting(f.key+":free", f.long()))
			return err
		},
		"Acquire in the queue": func(ctx context.Context, how string, try int) error {
			w := queued[how][try]
			stop := context.AfterFunc(ctx, w.cancel)
			defer stop()
			res := <-w.done
			return res.err
		},
		"Acquire that replaces": func(ctx context.Context, _ string, _ int) error {
			e := driver.Ending{ID: driver.ID{Key: f.key + ":free", Owner: owner()}, Token: 1, Deadline: time.Now().Add(time.Minute)}
			r := f.waiting(f.key+":free", f.long())
			r.Replace = &e
			_, err := p.s.Acquire(ctx, r)
			return err
		},
		"Renew": func(ctx context.Context, _ string, _ int) error {
			out := p.s.Renew(ctx, []driver.Renewal{l.renewal(f.long())})
			if len(out) != 1 {
				return nil
			}
			return out[0].Err
		},
		"Release": func(ctx context.Context, _ string, _ int) error {
			errs := p.s.Release(ctx, []driver.Ending{{ID: driver.ID{Key: f.key, Owner: owner()}, Token: l.Token, Deadline: l.Deadline}})
			if len(errs) != 1 {
				return nil
			}
			return errs[0]
		},
		"Inspect": func(ctx context.Context, _ string, _ int) error {
			_, err := p.s.Inspect(ctx, f.key)
			return err
		},
	}
	if lister, ok := p.s.(driver.Lister); ok {
		calls["List"] = func(ctx context.Context, _ string, _ int) error {
			_, err := lister.List(ctx, f.key, "", 10)
			return err
		}
	}
	resume := f.stall()
	type outcome struct {
		call, how string
		late      time.Duration
		err       error
	}
	outcomes := make(chan outcome, len(calls)*len(ends)*tries)
	for call, do := range calls {
		for how, bounded := range ends {
			for try := range tries {
				go func() {
					after := first + time.Duration(try)*apart
					ctx, cancel := bounded(after)
					defer cancel()
					start := time.Now()
					err := do(ctx, how, try)
					outcomes <- outcome{call, how, time.Since(start) - after, err}
				}()
			}
		}
	}
	quickest := make(map[string]time.Duration)
	for range cap(outcomes) {
		o := await(f, last+grace+2*Slack, "some call while the store is silent", outcomes)
		name := o.call + " (" + o.how + ")"
		switch {
		case o.err == nil:
			f.t.Errorf("%s: success while the store is silent", name)
		case errors.Is(o.err, driver.ErrNotHeld):
			f.t.Errorf("%s: ErrNotHeld while the store is silent; it was not asked", name)
		case o.late > f.allow(grace+Slack):
			f.t.Errorf("%s: returned %v after the end of its context", name, o.late)
		}
		if best, ok := quickest[name]; !ok || o.late < best {
			quickest[name] = o.late
		}
	}
	for name, late := range quickest {
		if late > f.allow(grace+jitter) {
			f.t.Errorf("%s: at best returned %v after the end of its context", name, late)
		}
	}
	// Close too is bounded by its context, whatever is left to clean up.
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), first)
	defer cancel()
	// What it returns when it could not clean up is its own.
	_ = within(f, first+grace+Slack, "Close while the store is silent", func() error { return q.s.Close(ctx) })
	if late := time.Since(start) - first; late > f.allow(grace+Slack) {
		f.t.Errorf("Close: returned %v after the end of its context", late)
	}
	resume()
}

// silentStoreEndsEachAttempt gives a call whose context never ends.
func silentStoreEndsEachAttempt(f *fixture) {
	const timeout = 300 * time.Millisecond
	p := f.open(f.h.Driver, timeout)
	resume := f.stall()
	w := p.start(context.Background(), f.request(f.key, f.long()))
	// Two attempts, since a client may repeat one.
	if _, err := w.ended(2*timeout+grace+Slack, "an acquire without a deadline that would not wait, while the store was silent"); err == nil {
		f.t.Error("success while the store is silent")
	} else if isHeld(err) {
		f.t.Error("a silent store is not a held key")
	}
	resume()
	f.takeSoon(f.process())
}

func sessionWorksOnAfterSilence(f *fixture) {
	p := f.process()
	l := p.take(f.key, f.long())
	resume := f.stall()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	out := within(f, 200*time.Millisecond+grace+Slack, "renewal while the store is silent", func() []driver.Renewed {
		return p.s.Renew(ctx, []driver.Renewal{l.renewal(f.long())})
	})
	for _, r := range out {
		if r.Err == nil || errors.Is(r.Err, driver.ErrNotHeld) {
			f.t.Errorf("renewal while the store is silent returned %v", r.Err)
		}
	}
	resume()
	f.eventually(f.cleanUp(), "a renewal after the store has come back", func() bool {
		err := l.renew(f.long()).Err
		if errors.Is(err, driver.ErrNotHeld) {
			f.t.Fatal("a lease was lost although its store came back long before its end")
		}
		return err == nil
	})
	l.holds()
	l.drop()
}

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
