package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var promptChecks = []check{
	{"PromptCallsReturnInTimeFromSilence", needs(prompting, stalling), promptInSilence},
	{"BegunWaiterHasOnePlace", needs(prompting), begunWaiter},
	{"BegunAndGivenUpLeavesNothing", needs(prompting), begunAndGivenUp},
	{"EndEndsItsOwnLeaseOnly", needs(prompting), endOfAnother},
}

// prompting is the need of sessions that are a driver.Prompt.
var prompting = need{"Session that is a driver.Prompt", false, func(f *fixture) bool { return prompts(f.h.Driver) }}

// prompts reports whether the driver's sessions are a driver.Prompt.
func prompts(d driver.Driver) bool {
	_, ok := sessionOf(d).(driver.Prompt)
	return ok
}

// sessionOf returns a closed session of the driver, or nil.
func sessionOf(d driver.Driver) driver.Session {
	s, err := d.Open(driver.Config{Sink: newSink(), StoreTimeout: storeTimeout})
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), promptness)
	defer cancel()
	_ = s.Close(ctx) // it has done nothing
	return s
}

// begin calls Begin.
func (p *process) begin(r driver.Request) (g driver.Grant, done bool, err error) {
	p.f.t.Helper()
	type answer struct {
		g    driver.Grant
		done bool
		err  error
	}
	a := within(p.f, driver.Promptness+Slack, "Begin", func() answer {
		g, done, err := p.s.(driver.Prompt).Begin(r, time.Now())
		return answer{g, done, err}
	})
	return a.g, a.done, a.err
}

func promptInSilence(f *fixture) {
	p, q := f.process(), f.peer()
	for range 3 { // so that the store is known for quick answers
		p.take(f.key, f.long()).drop()
	}
	held := p.take(f.key+":held", f.long())
	resume := f.stall()
	r := f.request(f.key, f.long())
	if _, done, err := p.begin(r); done && err == nil {
		f.t.Fatal("success while the store is silent")
	} else if !done {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := p.acquire(ctx, r); err == nil {
			f.t.Fatal("success while the store is silent")
		}
	}
	type answer struct {
		done bool
		err  error
	}
	a := within(f, driver.Promptness+Slack, "End", func() answer {
		done, err := p.s.(driver.Prompt).End(held.ending(), time.Now())
		return answer{done, err}
	})
	if a.done && (a.err == nil || errors.Is(a.err, driver.ErrNotHeld)) {
		f.t.Errorf("End while the store is silent says %v", a.err)
	}
	resume()
	f.noGhost(p, q)
}

func begunWaiter(f *fixture) {
	p, q := f.process(), f.process()
	for range 3 {
		l := q.take(f.key, f.long())
		r := f.waiting(f.key, f.long())
		if _, done, err := p.begin(r); done {
			f.t.Fatalf("Begin for a held key that is waited for is done: %v", err)
		}
		w := p.enqueue(r)
		if n := f.state(f.key).Waiting; n != f.places(1) {
			f.t.Errorf("one waiter, begun by Begin, has %d places in the queue", n)
		}
		l.drop()
		l = w.granted(f.handOver(), "the grant to a waiter begun by Begin")
		l.holds()
		l.drop()
	}
}

func begunAndGivenUp(f *fixture) {
	p, q := f.process(), f.process()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		l := q.take(f.key, f.long())
		r := f.waiting(f.key, f.long())
		if _, done, err := p.begin(r); done {
			f.t.Fatalf("Begin for a held key that is waited for is done: %v", err)
		}
		if _, err := p.acquire(gone, r); err == nil {
			f.t.Fatal("a held key was granted")
		}
		f.eventually(f.cleanUp(), "a waiter given up after Begin leaving the queue", func() bool { return f.state(f.key).Waiting == 0 })
		l.drop()
		f.takeSoon(q)
	}
}

func endOfAnother(f *fixture) {
	p, q := f.process(), f.process()
	p.take(f.key+":warm", f.long()).drop()
	l := q.take(f.key, f.long())
	e := l.ending()
	e.Owner = owner()
	_, _ = p.s.(driver.Prompt).End(e, time.Now()) // it may look like a repetition
	l.holds()
	if done, err := q.s.(driver.Prompt).End(l.ending(), time.Now()); done && err != nil {
		f.t.Fatalf("End of a lease that is held: %v", err)
	} else if !done {
		l.drop()
	}
	f.takeSoon(p)
}

// promptly are the checks of what Begin and End do in another way than Acquire and
// Release.
var promptly = slices.Concat(
	exclusionChecks,
	ownerChecks,
	releaseChecks,
	tokenChecks,
	deadlineChecks,
	withdrawalChecks,
	keepChecks,
	identityChecks,
)

// runPromptly runs checks with every Acquire begun by Begin, and every Release of one
// lease by End.
func runPromptly(t *testing.T, newHarness func(t *testing.T) *Harness, start func(check, *testing.T, func(*testing.T) *Harness)) {
	if h := newHarness(t); h == nil || h.Driver == nil || !prompts(h.Driver) {
		t.Skip("the driver's sessions are not a driver.Prompt")
	}
	for _, c := range promptly {
		t.Run(c.name, func(t *testing.T) {
			start(c, t, func(t *testing.T) *Harness {
				h := *newHarness(t)
				h.Driver = promptDriver{h.Driver}
				return &h
			})
		})
	}
}

// promptDriver is a driver whose sessions go by Begin and End.
type promptDriver struct{ driver.Driver }

func (d promptDriver) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	if err != nil {
		return nil, err
	}
	return promptSession{s.(driver.Prompt)}, nil
}

type promptSession struct{ driver.Prompt }

func (s promptSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if ctx.Err() == nil && r.Replace == nil {
		if g, done, err := s.Begin(r, time.Now()); done {
			return g, err
		}
	}
	return s.Prompt.Acquire(ctx, r)
}

func (s promptSession) Release(ctx context.Context, es []driver.Ending) []error {
	if ctx.Err() == nil && len(es) == 1 {
		if done, err := s.End(es[0], time.Now()); done {
			return []error{err}
		}
	}
	return s.Prompt.Release(ctx, es)
}

var promptAllChecks = []check{
	{"RequestsBegunTogetherHaveResultsOfTheirOwn", needs(promptingAll), begunTogether},
}

// promptingAll is the need of sessions that are a driver.PromptAll.
var promptingAll = need{"Session that is a driver.PromptAll", false, func(f *fixture) bool { return promptsAll(f.h.Driver) }}

func promptsAll(d driver.Driver) bool {
	_, ok := sessionOf(d).(driver.PromptAll)
	return ok
}

// beginAll calls BeginAll.
func (p *process) beginAll(rs []driver.Request) []driver.Begun {
	p.f.t.Helper()
	return within(p.f, driver.Promptness+Slack, "BeginAll", func() []driver.Begun {
		begun := make([]driver.Begun, len(rs))
		p.s.(driver.PromptAll).BeginAll(rs, time.Now(), begun)
		return begun
	})
}

// requests are for n keys of which none is used.
func (f *fixture) requests(n int) (rs []driver.Request) {
	for i := range n {
		rs = append(rs, f.request(fmt.Sprint(f.key, ":", i), f.long()))
	}
	return rs
}

func begunTogether(f *fixture) {
	p, q := f.process(), f.process()
	for round := range 3 { // the store is known for quick answers only after the first
		rs := f.requests(5)
		taken := round + 1
		held := q.take(rs[taken].Key, f.long())
		before := time.Now()
		var leases []*lease
		for i, b := range p.beginAll(rs) {
			if !b.Done {
				l, err := p.acquire(f.patient(), rs[i])
				if b.Err = err; err == nil {
					b.Grant = l.Grant
				}
			}
			switch {
			case i == taken && !errors.As(b.Err, new(*driver.HeldError)):
				f.t.Fatalf("the request for the key that is held comes to %v", b.Err)
			case i == taken:
			case b.Err != nil:
				f.t.Fatalf("the request for key %d, which is free: %v", i, b.Err)
			case b.Grant.ID != rs[i].ID:
				f.t.Fatalf("the request for key %d is granted another ID", i)
			default:
				l := &lease{Grant: b.Grant, p: p, ttl: rs[i].TTL, sent: before, back: time.Now()}
				l.holds()
				leases = append(leases, l)
			}
		}
		held.holds()
		held.drop()
		for _, l := range leases {
			l.drop()
		}
		for _, r := range rs {
			q.take(r.Key, f.long()).drop()
		}
	}
}
