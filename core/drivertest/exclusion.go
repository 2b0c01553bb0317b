package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var exclusionChecks = []check{
	{"OneHolderUnderLoad", nil, oneHolderUnderLoad},
	{"OneHolderAcrossExpiry", nil, oneHolderAcrossExpiry},
	{"QueueIsServedInOrder", needs(queueing), queueIsServedInOrder},
	{"NewcomerDoesNotOvertakeTheQueue", needs(queueing), newcomerDoesNotOvertake},
	{"CallersOfAllProcessesAreServedInOrder", needs(strict), callersAreServedInOrder},
}

// claim is the time in which a process may believe that it holds the key: from
// the return of Acquire to the call of Release or the deadline.
type claim struct {
	from, to time.Time
	token    int64
}

// claims collects claims from concurrent holders.
type claims struct {
	mu  sync.Mutex
	all []claim
}

func (c *claims) add(l *lease, end time.Time) {
	if l.Deadline.Before(end) {
		end = l.Deadline
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, claim{l.back, end, l.Token})
}

// verify fails the check if two claims overlap, or a later one has a token
// that is not larger.
func (c *claims) verify(f *fixture) {
	f.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	// A claim that was over when it began claims nothing, and its place among
	// the others is not known.
	all := slices.DeleteFunc(c.all, func(a claim) bool { return !a.to.After(a.from) })
	slices.SortFunc(all, func(a, b claim) int { return a.from.Compare(b.from) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.from.Before(a.to) {
			f.t.Fatalf("two owners held the key at once, for %v (tokens %d and %d)", a.to.Sub(b.from), a.token, b.token)
		}
		if f.caps.Tokens != driver.NoTokens && b.token <= a.token {
			f.t.Fatalf("token %d was granted after token %d", b.token, a.token)
		}
	}
}

func oneHolderUnderLoad(f *fixture) {
	const processes, callers, rounds = 3, 4, 8
	var (
		all     claims
		running sync.WaitGroup
		counter int // guarded by the key, and by nothing else
		guard   sync.Mutex
		failure = make(chan error, processes*callers)
	)
	ctx := f.patient()
	sessions := make([]*process, processes)
	for i := range sessions {
		sessions[i] = f.process()
	}
	for _, p := range sessions {
		for range callers {
			running.Go(func() {
				for range rounds {
					l, err := acquireAnew(ctx, p, f.waiting(f.key, f.long()))
					if err != nil {
						failure <- fmt.Errorf("acquire: %w", err)
						return
					}
					guard.Lock()
					seen := counter
					guard.Unlock()
					yield()
					guard.Lock()
					counter = seen + 1
					guard.Unlock()
					all.add(l, time.Now())
					if err := p.s.Release(ctx, []driver.Ending{l.ending()})[0]; err != nil {
						failure <- fmt.Errorf("release: %w", err)
						return
					}
				}
			})
		}
	}
	f.finish(&running, "the load")
	select {
	case err := <-failure:
		f.t.Fatalf("under load: %v", err)
	default:
	}
	all.verify(f)
	if want := processes * callers * rounds; counter != want {
		f.t.Errorf("a counter that the key guards is %d after %d increments", counter, want)
	}
	for _, p := range sessions {
		if n := p.sink.losses(); n != 0 {
			f.t.Errorf("Sink.Lost was called for %d leases that were not lost", n)
		}
	}
	if st := f.state(f.key); st.Held || st.Waiting != 0 {
		f.t.Errorf("after the load, Inspect says %+v", st)
	}
}

// acquireAnew acquires, with a fresh owner each time the place is lost.
func acquireAnew(ctx context.Context, p *process, r driver.Request) (*lease, error) {
	for {
		sent := time.Now()
		g, err := p.s.Acquire(ctx, r)
		if errors.Is(err, driver.ErrPlaceLost) && ctx.Err() == nil {
			r.Owner = owner()
			continue
		}
		if err != nil {
			return nil, err
		}
		return &lease{Grant: g, p: p, ttl: r.TTL, sent: sent, back: time.Now()}, nil
	}
}

// yield lets other goroutines run, so that a second holder would show.
func yield() { linger(100 * time.Microsecond) }

// linger holds for a moment.
func linger(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

func oneHolderAcrossExpiry(f *fixture) {
	const processes = 3
	var (
		all     claims
		running sync.WaitGroup
		failure = make(chan error, processes)
	)
	ctx := f.patient()
	for range processes {
		p := f.process()
		running.Go(func() {
			for range 2 {
				r := f.waiting(f.key, f.short())
				l, err := acquireAnew(ctx, p, r)
				for err != nil && !f.longest(r.TTL) {
					r = f.longer(r)
					l, err = acquireAnew(ctx, p, r)
				}
				if err != nil {
					failure <- err
					return
				}
				all.add(l, l.Deadline)
			}
		})
	}
	f.finish(&running, "leases that only expire")
	select {
	case err := <-failure:
		f.t.Fatalf("waiting for leases that expire: %v", err)
	default:
	}
	all.verify(f)
}

func queueIsServedInOrder(f *fixture) {
	const waiters = 5
	l := f.process().take(f.key, f.long())
	var queue []*waiter
	for i := range waiters {
		queue = append(queue, f.process().queue(f.key))
		if st := f.state(f.key); st.Waiting != i+1 {
			f.t.Errorf("with %d waiters, Inspect says %d", i+1, st.Waiting)
		}
	}
	for i, w := range queue {
		l.drop()
		l = w.granted(f.handOver(), fmt.Sprintf("the grant to the waiter in place %d, whose turn it is,", i+1))
		l.holds()
		for _, later := range queue[i+1:] {
			later.stillWaits()
		}
	}
	l.drop()
}

// callersAreServedInOrder has processes with several waiters each, as they have for
// strict fairness.
func callersAreServedInOrder(f *fixture) {
	a, b := f.process(), f.process()
	l := f.process().take(f.key, f.long())
	var queue []*waiter
	for _, p := range []*process{a, b, a, a, b} {
		queue = append(queue, p.queue(f.key))
	}
	for i, w := range queue {
		l.drop()
		l = w.granted(f.handOver(), fmt.Sprintf("the grant to the waiter in place %d, whose turn it is,", i+1))
		for _, later := range queue[i+1:] {
			later.stillWaits()
		}
	}
	l.drop()
}

func newcomerDoesNotOvertake(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	l.drop()
	if _, err := c.try(f.key, f.long()); err == nil {
		f.t.Fatal("a newcomer got a key for which another process had been waiting")
	}
	l = w.granted(f.handOver(), "the waiter's grant after a release")
	l.drop()
	f.takeSoon(c) // its first try may still be in the store
}

var keyChecks = []check{
	{"KeysAreIndependent", nil, keysAreIndependent},
	{"HostileKeysDoNotCollide", nil, hostileKeysDoNotCollide},
}

func keysAreIndependent(f *fixture) {
	const n = 60
	a, b := f.process(), f.process()
	blocked := a.take(f.key, f.long())
	w := b.queue(f.key)
	var (
		running sync.WaitGroup
		leases  = make([]*lease, n)
		errs    = make([]error, n)
		ctx     = f.patient()
	)
	for i := range n {
		p := []*process{a, b}[i%2]
		running.Go(func() {
			leases[i], errs[i] = acquireAnew(ctx, p, f.waiting(fmt.Sprintf("%s:%d", f.key, i), f.long()))
		})
	}
	f.finish(&running, "taking many free keys")
	var (
		renewals []driver.Renewal
		endings  []driver.Ending
	)
	for i, l := range leases {
		if errs[i] != nil {
			f.t.Fatalf("acquire of one of %d free keys: %v", n, errs[i])
		}
		if l.p == a {
			renewals = append(renewals, l.renewal(f.long()))
			endings = append(endings, l.ending())
		}
	}
	for i, r := range a.renew(renewals...) {
		if r.Err != nil {
			f.t.Fatalf("renewal %d of %d in one call: %v", i, len(renewals), r.Err)
		}
	}
	for i, err := range a.end(endings...) {
		if err != nil {
			f.t.Fatalf("release %d of %d in one call: %v", i, len(endings), err)
		}
	}
	for i, l := range leases {
		if got, want := f.state(l.Key).Held, l.p == b; got != want {
			f.t.Fatalf("key %d of %d: held is %v, not %v, after half of the leases were released", i, n, got, want)
		}
		if l.p == b {
			l.drop()
		}
	}
	w.stillWaits()
	blocked.holds()
	blocked.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

// hostile are keys that some escaping or joining takes for one another.
func hostile() []string {
	long := strings.Repeat("k", 1023)
	return []string{
		"", " ", "a", "A", "a ", " a", "a:", ":a", "a::", ":", "::", "a:b", "a:b:", "a\x00", "a\x00b", "\x00",
		"{", "}", "{}", "{a}", "{a}b", "a{b}", "{{a}}", "}a{", "{}a", "a{}",
		"%", "%00", "%3A", "%3a", "a%3Ab", "%25", "%7B", "\\", "\\x00", "\\\\", "a\\", "_", "a_b", "a-b", "a.b", "a/b", "/a", "a/", "/", "..", "../a", "*", "a*", "?", "[a]",
		"\r\n", "\n", "a\n", "\t", "'", "\"", "`", ";", "a;b", "--", "$", "${a}", "#", "a b",
		"é", "e\u0301", "\u212a", "K", "ſ", "s", "\xff", "\xfe\xff", "\xc3", "\u200b", "\ufeff", "😀",
		long + "a", long + "b", strings.Repeat("{", 1024), strings.Repeat("\xff", 1024), strings.Repeat("\xfe", 1024),
	}
}

// hostileTTL is enough for a slow store to take all of them, since they are not renewed.
const hostileTTL = 5 * time.Minute

func hostileKeysDoNotCollide(f *fixture) {
	p, q := f.process(), f.process()
	long := max(f.long(), hostileTTL)
	var held []*lease
	for i, part := range hostile() {
		for _, key := range []string{f.key + part, part + f.key} {
			if part == "" && len(held) > 0 {
				continue // both are the bare key
			}
			l, err := p.try(key, long)
			if err != nil {
				f.t.Fatalf("key %d, %.40q…: %v", i, key, err)
			}
			if l.Key != key {
				f.t.Fatalf("the grant of key %d, %.40q…, names %.40q…", i, key, l.Key)
			}
			held = append(held, l)
		}
	}
	for i, l := range held {
		if i%5 == 0 {
			if _, err := q.try(l.Key, f.long()); !isHeld(err) {
				f.t.Fatalf("key %.40q… is held, but a request for it returned %v, not a *HeldError", l.Key, err)
			}
		}
		if st := f.state(l.Key); !st.Held || !f.inspected(st.Token, l) {
			f.t.Fatalf("key %.40q… was granted with token %d; after others were taken or released Inspect says %+v", l.Key, l.Token, st)
		}
		l.drop()
		if f.state(l.Key).Held {
			f.t.Fatalf("key %.40q… is held after its release", l.Key)
		}
	}
	// A waiter is woken by its own key.
	for _, part := range []string{"{a}:\x00\r\n'\xff", strings.Repeat("{", 1024)} {
		l := p.take(f.key+part, f.long())
		w := q.queue(l.Key)
		l.drop()
		w.granted(f.handOver(), "the waiter's grant after a release").drop()
	}
}
