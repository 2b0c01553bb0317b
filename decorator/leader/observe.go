package leader

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// Leadership says who leads.
type Leadership struct {
	Term  int64     // the fencing token of the term; 0 if nobody leads
	Since time.Time // when the term began, by the store's clock; zero if nobody leads or the store cannot tell
	Mine  bool      // this runner leads; if the store says so first, a second message corrects it

	// Leader is the identity of the process that leads: see core.WithIdentity. It is empty if
	// nobody leads or the store cannot tell.
	Leader string
}

// gate is a second lock, by which observers hear of the beginning and the end of a term
// without asking for it. The leader holds it for its term, and observers wait for it, sharing it.
// When the term ends they get it, and know. They keep it until another one waits for it: the
// next leader, so that they know again. They give it back and wait for that one's end.
type gate struct {
	engine  *core.Engine
	key     string                // of the leadership
	lead    *core.Guard[struct{}] // nil if the store has no shared locks
	observe *core.Guard[struct{}]
	none    error // why there is none
}

func (g *gate) init(e *core.Engine, p core.Policy) (err error) {
	g.engine, g.key = e, p.Key
	q := core.Policy{Key: p.Key + "#observers", Name: p.Name + "#observers", TTL: p.TTL, Wait: core.Forever, MaxHold: core.Forever, Standby: true, Release: core.Sent, Mode: core.Shared}
	if g.observe, err = core.NewGuard(e, q, room.NoArgument("a leader")); err != nil {
		g.none = err
		return nil
	}
	q.Mode = core.Exclusive
	g.lead, err = core.NewGuard(e, q, room.NoArgument("a leader"))
	return err
}

// announce holds the gate until the function that it returns is called, which waits until it
// is on its way back.
func (g *gate) announce(ctx context.Context) (leave func()) {
	if g.lead == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(core.Detach(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		for failures := 1; ; failures++ {
			lease, err := g.lead.Acquire(ctx, struct{}{})
			if err == nil {
				select {
				case <-ctx.Done():
				case <-lease.Done(): // somebody has taken it by force, or the store has lost it
				}
				_ = lease.Release(ctx) // it goes on in the background
			}
			if room.Pause(ctx, room.Doubled(DefaultPause, DefaultLongestPause, failures)) != nil || errors.Is(err, core.ErrClosed) {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// Observe returns a channel of who leads: what is known at first, and each change, in this
// process or another. Whoever reads slowly gets the latest only. The channel is closed when ctx
// ends or the engine is closed. The runner need not run. An observer waits for a lock, or holds
// it, as a call does: let ctx end before [core.Engine.Shutdown], which waits for that.
//
// Observers learn by pushes of the store, mostly within a round trip or two; if a push is
// lost, within the driver's bound for that. After a change an observer looks again after 1, 2, 4
// and 8 s, in case the next change has overtaken it. Besides that nothing is asked while
// nothing happens, but that its place in a queue, or its share of a lock, is kept. An
// observer of a dead leader hears of it when the leader's lease ends.
//
// The error is a [core.ErrPolicy] if the driver has no shared locks, as those of redlock.
func (l *Runner) Observe(ctx context.Context) (<-chan Leadership, error) {
	if ctx == nil {
		return nil, l.refuse("observe", "the context is nil; pass context.Background()")
	}
	if l.gate.none != nil {
		return nil, &core.Error{Op: "observe", Policy: l.guard.Name(), Kind: core.ErrPolicy, Detail: "observers share a lock, and this store has none that can be shared", Cause: l.gate.none}
	}
	o := &observer{runner: l, news: make(chan Leadership, 1)}
	alone, cancel := context.WithCancel(core.Detach(ctx))
	stop := context.AfterFunc(ctx, cancel)
	go func() {
		defer stop()
		defer cancel()
		o.run(alone)
	}()
	return o.news, nil
}

// observer tells one reader who leads.
type observer struct {
	runner *Runner
	news   chan Leadership
	told   bool
	last   Leadership
}

func (o *observer) run(ctx context.Context) {
	defer close(o.news)
	for failures := 0; ctx.Err() == nil; {
		err := o.await(ctx)
		switch {
		case errors.Is(err, core.ErrClosed):
			return
		case err != nil:
			failures++
			_ = room.Pause(ctx, room.Doubled(DefaultPause, DefaultLongestPause, failures))
		default:
			failures = 0
		}
	}
}

// await waits for the end of a term, and then for the beginning of the next one.
func (o *observer) await(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		lease *core.Lease
		err   error
	}
	granted := make(chan answer, 1)
	go func() {
		lease, err := o.runner.gate.observe.Acquire(ctx, struct{}{})
		granted <- answer{lease, err}
	}()
	got := false
	defer func() {
		cancel()
		if !got {
			if a := <-granted; a.err == nil {
				_ = a.lease.Release(ctx)
			}
		}
	}()
	began := o.runner.begins() // the store may say that somebody leads before the runner knows that it does
	if err := o.look(ctx); err != nil {
		return err
	}
	for again := time.Second; ; again *= 2 {
		var look <-chan time.Time
		if again <= 8*time.Second {
			look = time.After(again)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-began:
			began = o.runner.begins()
			if err := o.look(ctx); err != nil {
				return err
			}
			continue
		case <-look:
			if err := o.look(ctx); err != nil {
				return err
			}
			continue
		case a := <-granted:
			got = true
			if a.err != nil {
				return a.err
			}
			defer func() { _ = a.lease.Release(ctx) }() // it goes on in the background
			if err := o.look(ctx); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-began:
			case <-a.lease.Contended():
			case <-a.lease.Done():
			}
			return ctx.Err()
		}
	}
}

// look asks the store who leads, and tells the reader if that is new.
func (o *observer) look(ctx context.Context) error {
	st, err := o.runner.engine.Inspect(ctx, o.runner.gate.key)
	if err != nil {
		return err
	}
	now := leadershipOf(st)
	if st.Held {
		mine := o.runner.Status()
		now.Mine = mine.Leading && mine.Term == now.Term
	}
	if o.told && now == o.last {
		return nil
	}
	o.told, o.last = true, now
	select {
	case <-o.news: // nobody has read it
	default:
	}
	o.news <- now
	return nil
}

// leadershipOf is what a store says of who leads.
func leadershipOf(st core.KeyState) (now Leadership) {
	if st.Held {
		now.Term = st.Token
		if len(st.Holders) > 0 {
			now.Term, now.Since, now.Leader = st.Holders[0].Token, st.Holders[0].Since, st.Holders[0].Identity
		}
	}
	return now
}

// Panel says who leads, and what this process has done as a candidate, for a page that an
// operator looks at. It asks the store.
func (l *Runner) Panel(ctx context.Context) core.Panel {
	p := core.Panel{Title: "leader " + l.guard.Name(), Columns: []string{"leader", "term", "leads since", "leads here", "terms here"}}
	st, err := l.engine.Inspect(ctx, l.gate.key)
	if err != nil {
		p.Err = err
		return p
	}
	s := l.Status()
	row := []any{"nobody", nil, nil, s.Leading, s.Terms}
	if now := leadershipOf(st); st.Held {
		row[0], row[1], row[2] = cmp.Or(now.Leader, "unknown"), strconv.FormatInt(now.Term, 10), now.Since
	}
	p.Rows = [][]any{row}
	return p
}
