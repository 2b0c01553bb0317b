package endurance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

// releases ends leases while they are renewed. As soon as an engine begins to renew,
// the leases are released: while the renewal is on its way, or before it has set out,
// so that the store hears of the release first. After the release no renewal begins,
// and the one that is late changes nothing for who comes next.
var releases = figure{
	number: 8, name: "ReleaseEndsRenewal", full: 10_000, few: 40,
	try: func(l *lane, n int) {
		w := &watch{Driver: l.h.Driver, machine: l.machine, renewals: make(map[string]*renewal)}
		r := &racing{lane: l, watch: w, holder: l.engine(w), next: l.engine(l.peer())}
		l.rounds(n, min(100, n/2), r.round) // at least two, which differ
		<-time.After(l.short())             // in which a renewal would be made
		w.silent(l)
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s releases that raced with a renewal: 0 renewals sent or in force after", count(r.done))
	},
}

type racing struct {
	*lane
	watch        *watch
	holder, next *core.Engine
}

func (r *racing) round(round, n int) {
	each(n, func(i int) {
		key, v := r.renewed(numbered("race", round, i), round%2 == 1)
		if v == nil {
			return
		}
		// Whoever is next comes before the late renewal, or after it.
		if i%2 == 0 {
			<-v.ended
		}
		next, err := r.atOnce(key)
		if err != nil {
			r.t.Errorf("acquire of a key whose lease was released while it was renewed: %v", err)
			return
		}
		<-v.ended
		ctx, cancel := r.patient()
		defer cancel()
		if err := insist(func() error { return next.Check(ctx) }); err != nil {
			r.t.Errorf("the next holder after a late renewal: %v", err)
		}
		switch err := r.release(next); {
		case errors.Is(err, core.ErrUnavailable):
			return // it goes on in the background
		case err != nil:
			r.t.Errorf("release of the next holder after a late renewal: %v", err)
		}
		if next, err = r.atOnce(key); err != nil {
			r.t.Errorf("acquire of a key that all have released: %v", err)
			return
		}
		r.leave(next, "a lease that is held")
	})
}

// renewed takes a key, and releases it when its engine has begun to renew it. It returns
// the key, a fresh one for each attempt.
func (r *racing) renewed(name string, late bool) (key string, v *renewal) {
	for i := 0; ; i++ {
		key := numbered(name, i)
		h, err := r.hold(r.holder, key, r.short())
		if err != nil {
			r.t.Errorf("acquire of a free key: %v", err)
			return "", nil
		}
		v := r.watch.expect(r.space+"/"+key, late)
		select {
		case <-v.begun:
		case <-h.Done():
		}
		err = r.release(h)
		r.watch.over(v)
		switch {
		case err == nil:
			return key, v
		case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrLost) && !time.Now().Before(h.Deadline()):
			// The machine stood still, or the store. Once more, with the next lease.
		default:
			r.t.Errorf("release of a lease that is being renewed: %v", err)
			return "", nil
		}
	}
}

// atOnce takes a key that is free. If the store was too slow to answer, it may have
// granted the key to nobody, and who asks again has to wait.
func (r *racing) atOnce(key string) (*hold, error) {
	ctx, cancel := r.patient()
	defer cancel()
	h, err := r.holdWithin(ctx, r.next, core.Policy{Key: key, TTL: r.long()})
	if errors.Is(err, core.ErrUnavailable) {
		return r.hold(r.next, key, r.long())
	}
	return h, err
}

// underWay is how long after a release a renewal may begin that had been decided on
// before: its goroutine may have to wait for its turn.
const underWay = 50 * time.Millisecond

// watch is a driver whose renewals are watched, and held up.
type watch struct {
	driver.Driver
	machine  *machine
	mu       sync.Mutex
	renewals map[string]*renewal // by key in the store
	after    int                 // renewals that began after a release
}

// renewal is the first one of a key, and its release.
type renewal struct {
	late         bool          // it is to arrive after the release
	begun, ended chan struct{} // closed
	released     chan struct{} // likewise, after over was set
	over         time.Time     // when the release had returned
}

// expect watches a key that is held.
func (w *watch) expect(key string, late bool) *renewal {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &renewal{late: late, begun: make(chan struct{}), ended: make(chan struct{}), released: make(chan struct{})}
	w.renewals[key] = v
	return v
}

// over notes that the release of the key has returned.
func (w *watch) over(v *renewal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v.over = time.Now()
	close(v.released)
}

// silent fails the test if a renewal began after the release.
func (w *watch) silent(l *lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.after > 0 {
		l.t.Errorf("%d renewals began after the release had returned", w.after)
	}
}

// Open implements driver.Driver.
func (w *watch) Open(c driver.Config) (driver.Session, error) {
	s, err := w.Driver.Open(c)
	if p, ok := s.(driver.Prompt); ok {
		return &watchedPrompt{p, w}, err
	}
	return &watched{s, w}, err
}

type watched struct {
	driver.Session
	w *watch
}

type watchedPrompt struct {
	driver.Prompt
	w *watch
}

// Renew implements driver.Session.
func (s *watched) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	return s.w.renew(ctx, rs, s.Session.Renew)
}

// Renew implements driver.Session.
func (s *watchedPrompt) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	return s.w.renew(ctx, rs, s.Prompt.Renew)
}

// renew tells of renewals, holds them up until the releases are over for which they
// are to be late, and passes them on.
func (w *watch) renew(ctx context.Context, rs []driver.Renewal, send func(context.Context, []driver.Renewal) []driver.Renewed) []driver.Renewed {
	begun := w.begin(rs)
	for _, v := range begun {
		if v.late {
			<-v.released
		}
	}
	out := send(ctx, rs)
	for _, v := range begun {
		close(v.ended)
	}
	return out
}

// begin notes which renewals begin, and returns those that are the first of their key.
func (w *watch) begin(rs []driver.Renewal) (begun []*renewal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, r := range rs {
		v := w.renewals[r.Key]
		if v == nil {
			continue
		}
		if !v.over.IsZero() {
			if now.Sub(v.over)-w.machine.stood(v.over, now) > underWay {
				w.after++
			}
			continue
		}
		select {
		case <-v.begun:
		default:
			close(v.begun)
			begun = append(begun, v)
		}
	}
	return begun
}

// wakeUps loses what the store sends to waiters, whose keys are released meanwhile.
var wakeUps = figure{
	number: 10, name: "LostWakeUpsDelayByAtMostWake", full: 1000, few: 10,
	needs: []need{losing},
	try: func(l *lane, n int) {
		a, b := l.process(l.h.Driver), l.process(l.h.Driver)
		l.rounds(n, 50, func(_, n int) {
			holds, next := make([]*lease, n), make([]*waiter, n)
			each(n, func(i int) {
				var err error
				if holds[i], err = a.take(numbered("wake", i), l.long()); err != nil {
					l.t.Errorf("acquire of a free key: %v", err)
					return
				}
				next[i] = b.enqueue(numbered("wake", i), l.long())
			})
			if l.t.Failed() {
				return
			}
			restore := l.undone(l.h.LosePushes())
			defer restore()
			each(n, func(i int) {
				if err := holds[i].end(); err != nil {
					l.t.Errorf("release of a lease that is held: %v", err)
				}
				free := time.Now()
				g, err := next[i].wait()
				if err != nil {
					l.t.Errorf("a waiter whose wake-up was lost: %v", err)
					return
				}
				l.waited(l.t, free, g.back, l.caps.Wake, "the grant to a waiter whose wake-up was lost")
				if err := g.end(); err != nil {
					l.t.Errorf("release of a lease that is held: %v", err)
				}
			})
		})
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s wake-ups lost: nobody waited beyond the poll; longest %s", count(r.done), r.most())
	},
}

// withdrawals cancels waits in all their stages: as they ask, and in the queue.
var withdrawals = figure{
	number: 12, name: "CancelledWaitersLeaveNothing", full: 10_000, few: 100,
	try: func(l *lane, n int) {
		const key = "withdrawal"
		w := &withdrawing{lane: l, fresh: l.process(l.peer())}
		holder, waiters := l.process(l.h.Driver), l.process(l.h.Driver)
		l.rounds(n, 100, func(round, n int) {
			h, err := holder.take(key, l.long())
			if err != nil {
				l.t.Errorf("acquire of a free key: %v", err)
				return
			}
			each(n, func(i int) {
				if i%2 == 0 {
					queued := waiters.enqueue(key, l.long())
					queued.cancel()
					_, err := queued.wait()
					w.withdrawn(err)
					return
				}
				// Up to 10 ms is what a request takes, more or less.
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
				defer cancel()
				_, err := waiters.acquire(ctx, l.request(key, l.long(), true))
				w.withdrawn(err)
			})
			if err := h.end(); err != nil {
				l.t.Errorf("release of a lease that is held: %v", err)
				return
			}
			w.next(key)
			w.free(key)
		})
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s waiters cancelled: 0 ghosts; longest until the next one had the key %s", count(r.done), r.most())
	},
}

type withdrawing struct {
	*lane
	fresh *process
}

// withdrawn fails the test unless a wait that was cancelled has ended so.
func (w *withdrawing) withdrawn(err error) {
	if err == nil {
		w.t.Error("a wait that was cancelled was granted while another one held the key")
	}
}

// next takes the key behind whoever was given up and is not cleaned up yet. When it is
// granted nobody is in the queue any more.
func (w *withdrawing) next(key string) {
	limit := storeTimeout + w.caps.Wake
	since := time.Now()
	g, err := w.fresh.take(key, w.long())
	if err != nil {
		w.t.Errorf("acquire of a key whose waiters were cancelled: %v", err)
		return
	}
	w.waited(w.t, since, g.back, limit, "the grant of a key whose waiters were cancelled")
	ctx, cancel := context.WithTimeout(context.Background(), limit+drivertest.Slack)
	defer cancel()
	for {
		st, err := w.fresh.Inspect(ctx, g.Key)
		if err == nil && st.Waiting == 0 {
			break
		}
		if ctx.Err() != nil {
			w.t.Errorf("waiters who were cancelled are in the queue: %+v, %v", st, err)
			return
		}
		yield()
	}
	if err := g.end(); err != nil {
		w.t.Errorf("release of a lease that is held: %v", err)
	}
}

// free takes the key at once, without waiting.
func (w *withdrawing) free(key string) {
	ctx, cancel := w.patient()
	defer cancel()
	for {
		g, err := w.fresh.acquire(ctx, w.request(key, w.long(), false))
		switch {
		case err == nil:
			if err := g.end(); err != nil {
				w.t.Errorf("release of a lease that is held: %v", err)
			}
			return
		case isHeld(err), ctx.Err() != nil:
			w.t.Errorf("acquire of a free key whose waiters were cancelled: %v", err)
			return
		}
		yield() // the store was too slow to answer
	}
}
