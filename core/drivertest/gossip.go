package drivertest

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var gossipChecks = []check{
	{"MessageReachesThoseWhoListenToItsTopic", needs(gossiping), messageReachesItsTopic},
	{"ListenerIsToldWhenItListens", needs(gossiping), listenerIsTold},
	{"TellEndsWithItsContext", needs(gossiping, stalling), tellEndsWithItsContext},
	{"ClosedSessionTellsNobody", needs(gossiping), closedSessionTellsNobody},
}

// gossiping is the need of sessions that are a driver.Gossip.
var gossiping = need{"Session that is a driver.Gossip", false, func(f *fixture) bool {
	_, ok := sessionOf(f.h.Driver).(driver.Gossip)
	return ok
}}

// ear is a listener that keeps what it hears.
type ear struct {
	stop func()

	mu    sync.Mutex
	up    int
	heard map[string]bool
}

func (p *process) listen(topic string) *ear {
	e := &ear{heard: make(map[string]bool)}
	e.stop = within(p.f, driver.Promptness+Slack, "Listen", func() func() {
		return p.s.(driver.Gossip).Listen(topic, driver.Listener{
			Listening: func() {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.up++
			},
			Heard: func(m []byte) {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.heard[string(m)] = true
			},
		})
	})
	return e
}

func (e *ear) has(message []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[string(message)]
}

func (e *ear) listens() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.up > 0
}

// tell sends a message.
func (p *process) tell(topic string, message []byte) {
	p.f.t.Helper()
	ctx := p.f.prompt()
	err := within(p.f, promptness+grace+Slack, "Tell", func() error { return p.s.(driver.Gossip).Tell(ctx, topic, message) })
	if err != nil {
		p.f.t.Fatalf("tell: %v", err)
	}
}

// begin makes sessions listen, which they do from their first Acquire or Tell on.
func (f *fixture) begin(all ...*process) {
	f.t.Helper()
	for _, p := range all {
		p.tell(f.key+"/nobody", nil)
	}
}

// reach tells ears of one topic messages until each of them has heard one.
func (p *process) reach(topic string, all ...*ear) {
	p.f.t.Helper()
	hello := []byte("hello " + p.f.key)
	p.f.eventually(p.f.cleanUp(), "a message that reaches those who listen", func() bool {
		p.tell(topic, hello)
		return !slices.ContainsFunc(all, func(e *ear) bool { return !e.has(hello) })
	})
}

func messageReachesItsTopic(f *fixture) {
	p, q := f.process(), f.peer()
	topic := f.key + "/\x00{}*?[ä]\r\n/topic"
	first, a, b, left := p.listen(topic), p.listen(topic), q.listen(topic), q.listen(f.key+"/left")
	other := q.listen(f.key)
	f.begin(p, q)
	q.reach(topic, a, b)
	p.reach(topic, a, b)
	q.reach(f.key+"/left", left)
	left.stop()
	for _, size := range []int{0, 1, driver.MaxGossip} {
		message := bytes.Repeat([]byte{0, '\r', '\n', 0xff, '*'}, size/5+1)[:size]
		f.eventually(f.cleanUp(), "a message to both sessions", func() bool {
			q.tell(topic, message)
			q.tell(f.key+"/left", message)
			return a.has(message) && b.has(message)
		})
		switch {
		case first.has(message):
			f.t.Fatal("a listener whose place another one has taken hears a message")
		case other.has(message):
			f.t.Fatal("a message reaches those who listen to another topic")
		}
	}
	f.eventually(f.cleanUp(), "the end of a listener that was stopped", func() bool {
		left.mu.Lock()
		clear(left.heard)
		left.mu.Unlock()
		mark := []byte("mark")
		q.tell(f.key+"/left", mark)
		q.reach(topic, b)
		return !left.has(mark)
	})
}

func listenerIsTold(f *fixture) {
	p, q := f.process(), f.peer()
	before := p.listen(f.key + "/before")
	p.tell(f.key+"/nobody", nil)
	after := p.listen(f.key + "/after")
	f.eventually(f.cleanUp(), "listeners that are told that they listen", func() bool { return before.listens() && after.listens() })
	message := []byte("now")
	q.tell(f.key+"/before", message)
	q.tell(f.key+"/after", message)
	f.eventually(f.cleanUp(), "a message after that", func() bool { return before.has(message) && after.has(message) })
	again := p.listen(f.key + "/after")
	f.eventually(f.cleanUp(), "the next listener being told", again.listens)
}

func tellEndsWithItsContext(f *fixture) {
	p := f.process()
	p.tell(f.key, []byte("before"))
	resume := f.stall()
	defer resume()
	const lasts = 150 * time.Millisecond
	ctx := f.lasting(lasts)
	err := within(f, lasts+driver.Promptness+Slack, "a Tell whose context ends while the store is silent", func() error {
		return p.s.(driver.Gossip).Tell(ctx, f.key, []byte("lost"))
	})
	if err == nil {
		f.t.Fatal("a store that is silent has taken a message")
	}
}

func closedSessionTellsNobody(f *fixture) {
	p, q := f.process(), f.process()
	e := q.listen(f.key)
	f.begin(p, q)
	p.reach(f.key, e)
	if err := p.s.Close(f.prompt()); err != nil {
		f.t.Fatalf("close: %v", err)
	}
	if err := p.s.(driver.Gossip).Tell(f.prompt(), f.key, []byte("closed")); !errors.Is(err, driver.ErrClosed) {
		f.t.Fatalf("Tell of a closed session returned %v, not ErrClosed", err)
	}
}
