package redlock

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// process is a session whose process may crash.
type process struct {
	driver.Session
	w      *world
	cut    uint64 // nodes that it cannot reach, a bit each; guarded by w.mu
	cancel context.CancelFunc
	dead   context.Context
}

func (w *world) process() *process {
	p := &process{w: w}
	p.dead, p.cancel = context.WithCancel(context.Background())
	var opts []Option
	if w.delayed && w.forgetful {
		opts = append(opts, WithRestartDelay(longestTTL))
	}
	d := newDriver(make([]string, len(w.nodes)), func(time.Duration) ([]wire, error) {
		var ws []wire
		for i, m := range w.nodes {
			ws = append(ws, faultyWire{m, p, i})
		}
		return ws, nil
	}, opts)
	d.jitter = func() float64 { return float64(w.draw(1<<20)) / (1 << 20) }
	if !w.forgetful { // its tokens come from counters alone
		d.clock = func() int64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return int64(w.rng.IntN(2 + 2*w.counts["grants"]))
		}
	}
	p.Session, _ = d.Open(driver.Config{Sink: deafSink{}, StoreTimeout: 400 * time.Millisecond})
	return p
}

// faultyWire is a network that loses, delays and reorders.
type faultyWire struct {
	*model
	p    *process
	node int
}

func (f faultyWire) run(ctx context.Context, cmds []command) []reply {
	w := f.p.w
	lost := func() []reply {
		select {
		case <-ctx.Done():
		case <-f.p.dead.Done():
		}
		rs := make([]reply, len(cmds))
		for i := range rs {
			rs[i].err = &kit.SilenceError{}
		}
		return rs
	}
	pace := func() time.Duration {
		if w.chance(5) {
			return w.span(600 * time.Millisecond)
		}
		return w.span(8 * time.Millisecond)
	}
	w.mu.Lock()
	calm, down := w.calm, w.down[f.node] || f.p.cut>>f.node&1 == 1
	w.mu.Unlock()
	if calm {
		return f.model.run(ctx, cmds)
	}
	if down || f.p.dead.Err() != nil || w.chance(3) {
		return lost()
	}
	// What is on its way is executed, whatever has become of its sender.
	done := make(chan []reply, 1)
	first, second := pace(), pace()
	drop := w.chance(3)
	go func() {
		time.Sleep(first)
		rs := f.model.run(ctx, cmds)
		time.Sleep(second)
		if drop {
			w.count("lost replies")
			return
		}
		done <- rs
	}()
	select {
	case rs := <-done:
		if f.p.dead.Err() == nil {
			return rs
		}
	case <-ctx.Done():
	case <-f.p.dead.Done():
	}
	return lost()
}

func (f faultyWire) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	return f.model.listen(ctx, channel, up, func(payload string) {
		if !f.p.w.chance(10) && f.p.dead.Err() == nil {
			message(payload)
		}
	})
}

type deafSink struct{}

func (deafSink) Waiting(driver.ID) {}

func (deafSink) Contended(driver.ID, bool) {}

func (deafSink) Lost(driver.ID, error) {}

// caller takes the key a few times.
func (w *world) caller() {
	p := w.process()
	defer func() { p.end() }()
	for range 3 + w.draw(6) {
		time.Sleep(w.span(300 * time.Millisecond))
		r := driver.Request{
			ID: driver.ID{Key: simulatedKey}, Wait: w.chance(60),
			TTL: []time.Duration{200 * time.Millisecond, time.Second, longestTTL}[w.draw(3)],
		}
		w.mu.Lock()
		binary.LittleEndian.PutUint64(r.Owner[:], w.rng.Uint64())
		binary.LittleEndian.PutUint64(r.Owner[8:], w.rng.Uint64())
		w.mu.Unlock()
		if r.Wait {
			w.count("waits")
		}
		if w.chance(8) { // in the middle of it, or while it holds
			w.count("crashes")
			crash := time.AfterFunc(w.span(100*time.Millisecond), p.cancel)
			w.turn(p, r)
			crash.Stop()
			p.cancel()
			p.end()
			p = w.process()
			continue
		}
		w.turn(p, r)
	}
}

// turn is one acquisition, what is done with it, and its end.
func (w *world) turn(p *process, r driver.Request) {
	ctx, cancel := context.WithTimeout(p.dead, 100*time.Millisecond+w.span(8*time.Second))
	defer cancel()
	g, err := p.Acquire(ctx, r)
	from := time.Now()
	if held := new(driver.HeldError); errors.As(err, &held) {
		w.count("held")
	}
	if err != nil {
		return
	}
	w.granted(&g)
	deadline := g.Deadline
	for w.chance(50) {
		time.Sleep(w.span(r.TTL / 2))
		if w.chance(40) {
			w.count("partitions")
			p.partition(uint64(w.draw(1 << len(w.nodes))))
			defer p.partition(0)
		}
		if !time.Now().Before(deadline) {
			break
		}
		out := p.Renew(ctx, []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: r.TTL}})[0]
		if errors.Is(out.Err, driver.ErrNotHeld) {
			w.claim(from, earlier(deadline, time.Now()), g.Token)
			return
		}
		if out.Err == nil {
			w.count("renewals")
			deadline = driver.Later(deadline, out.Deadline)
		}
	}
	if w.chance(25) { // it forgets to release
		w.claim(from, deadline, g.Token)
		return
	}
	time.Sleep(w.span(50 * time.Millisecond))
	w.claim(from, earlier(deadline, time.Now()), g.Token)
	_ = p.Release(ctx, []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: deadline}})
}

// partition parts the process from nodes.
func (p *process) partition(nodes uint64) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.cut = nodes
}

// end closes the session; that of a crashed process has nobody to talk to.
func (p *process) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = p.Close(ctx) // what it could not clean up expires
	p.cancel()
}
