package drivertest

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var listChecks = []check{
	{"ListNamesEveryTakenKey", needs(listing), listNamesEveryTakenKey},
	{"ListKeepsToItsPrefix", needs(listing), listKeepsToItsPrefix},
	{"ListBearsKeysThatComeAndGo", needs(listing), listBearsKeysThatComeAndGo},
}

// listing is the need of sessions that are a driver.Lister.
var listing = need{"Session that is a driver.Lister", false, func(f *fixture) bool { return lists(f.h.Driver) }}

func lists(d driver.Driver) bool {
	_, ok := sessionOf(d).(driver.Lister)
	return ok
}

// maxPages is more than any store needs for a check's keys and those of others beside it.
const maxPages = 100_000

// list goes through the pages of a prefix, and calls between after each page but the last.
func (p *process) list(prefix string, limit int, between func()) map[string]int {
	p.f.t.Helper()
	named := make(map[string]int)
	after := ""
	for range maxPages {
		page := p.page(prefix, after, limit)
		for _, key := range page.Keys {
			named[key]++
		}
		if page.Next == "" {
			return named
		}
		after = page.Next
		between()
	}
	p.f.t.Fatalf("a list with a limit of %d has no end", limit)
	return nil
}

func (p *process) page(prefix, after string, limit int) driver.Page {
	p.f.t.Helper()
	type answer struct {
		page driver.Page
		err  error
	}
	ctx := p.f.prompt()
	a := within(p.f, promptness+grace+Slack, "List", func() answer {
		page, err := p.s.(driver.Lister).List(ctx, prefix, after, limit)
		return answer{page, err}
	})
	if a.err != nil {
		p.f.t.Fatalf("list: %v", a.err)
	}
	return a.page
}

func none() {}

// takeHostile takes hostile keys that begin with the check's.
func (f *fixture) takeHostile(p *process) (held []*lease) {
	f.t.Helper()
	for i, part := range hostile() {
		l, err := p.try(f.key+part, max(f.long(), hostileTTL))
		if err != nil {
			f.t.Fatalf("key %d, %.40q…: %v", i, part, err)
		}
		held = append(held, l)
	}
	return held
}

func listNamesEveryTakenKey(f *fixture) {
	p, q := f.process(), f.process()
	held := f.takeHostile(p)
	w := q.queue(held[0].Key)
	for _, limit := range []int{1000, 7} {
		named := q.list(f.key, limit, none)
		for _, l := range held {
			if named[l.Key] == 0 {
				f.t.Errorf("with a limit of %d, the key %.60q, which is held, is in no page", limit, l.Key)
			}
			delete(named, l.Key)
		}
		for key := range named {
			f.t.Errorf("with a limit of %d, a page has the key %.60q, which nobody has used", limit, key)
		}
	}
	w.cancel()
	for _, l := range held {
		l.holds()
		l.drop()
	}
}

func listKeepsToItsPrefix(f *fixture) {
	p := f.process()
	held := f.takeHostile(p)
	for _, part := range []string{"a", "a:", "{", "{a}", "%", "\\", "*", "?", "[a]", "\xff", "\x00", "..", "K", "no such key"} {
		prefix := f.key + part
		named := p.list(prefix, 100, none)
		for key := range named {
			if !strings.HasPrefix(key, prefix) {
				f.t.Errorf("a list of what begins with %q has %.60q", prefix, key)
			}
		}
		for _, l := range held {
			if strings.HasPrefix(l.Key, prefix) && named[l.Key] == 0 {
				f.t.Errorf("a list of what begins with %q lacks %.60q", prefix, l.Key)
			}
		}
	}
	for _, l := range held {
		l.drop()
	}
}

// listBearsKeysThatComeAndGo gives back keys that are listed already, and takes others, while
// the list goes on.
func listBearsKeysThatComeAndGo(f *fixture) {
	p := f.process()
	var stay, come, later []*lease
	for i := range 40 {
		l := p.take(f.key+":"+strings.Repeat("a", i), f.long())
		if i%4 == 0 {
			stay = append(stay, l)
		} else {
			come = append(come, l)
		}
	}
	named := p.list(f.key, 3, func() {
		for range min(3, len(come)) {
			come[0].drop()
			come = slices.Delete(come, 0, 1)
			later = append(later, p.take(f.key+strings.Repeat("z", 1+len(come)), f.long()))
		}
	})
	for _, l := range stay {
		if named[l.Key] == 0 {
			f.t.Errorf("the key %q, which was held all the time, is in no page", l.Key)
		}
		l.drop()
	}
	for _, l := range slices.Concat(come, later) {
		l.drop()
	}
}

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

var oustChecks = []check{
	{"OustEndsEveryLease", needs(ousting), oustEndsEveryLease},
	{"OustServesTheWaiter", needs(ousting), oustServesTheWaiter},
	{"OustSparesWhoCameLater", needs(ousting), oustSparesWhoCameLater},
}

// oust ends the leases of the check's key up to a token.
func (p *process) oust(upTo int64) {
	p.f.t.Helper()
	ctx := p.f.prompt()
	err := within(p.f, promptness+grace+Slack, "oust", func() error { return p.s.Oust(ctx, p.f.key, upTo) })
	if err != nil {
		p.f.t.Fatalf("oust: %v", err)
	}
}

// isLost fails the check unless the lease has ended and its session is told.
func (l *lease) isLost() {
	l.p.f.t.Helper()
	l.told()
	if err := l.p.renew(l.renewal(l.ttl))[0].Err; !errors.Is(err, driver.ErrNotHeld) {
		l.p.f.t.Errorf("renewal of a lease that was taken from its holder returned %v, not ErrNotHeld", err)
	}
	if err := l.release(); !errors.Is(err, driver.ErrNotHeld) {
		l.p.f.t.Errorf("release of a lease that was taken from its holder returned %v, not ErrNotHeld", err)
	}
}

// reached waits until the lease's session has heard of w, which waits for its key: then
// it hears of a loss too.
func (l *lease) reached(told <-chan bool, w *waiter) {
	l.p.f.t.Helper()
	for waiting := false; !waiting; { // false may answer something earlier
		waiting = await(l.p.f, l.p.f.handOver(), "Sink.Contended after another process had queued", told)
	}
	w.stillWaits()
}

// told waits until the session knows that it has lost the lease.
func (l *lease) told() {
	l.p.f.t.Helper()
	l.p.f.eventually(l.p.f.handOver(), "Sink.Lost for a lease that was taken from its holder", func() bool { return l.p.sink.told(l.ID) })
}

func oustEndsEveryLease(f *fixture) {
	all := []*lease{f.process().take(f.key, f.long())}
	if slices.Contains(f.caps.Modes, driver.Shared) {
		all[0].drop()
		all = []*lease{f.process().takeAs(read), f.process().takeAs(read), f.process().takeAs(read)}
	}
	var told []<-chan bool
	for _, l := range all {
		told = append(told, l.p.sink.contention(l.ID))
	}
	w := f.process().queue(f.key)
	for i, l := range all {
		l.reached(told[i], w)
	}
	w.cancel()
	if _, err := w.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a waiter was granted a key that others hold")
	}
	f.eventually(f.cleanUp(), "the place of a waiter that has withdrawn ending", func() bool { return f.state(f.key).Waiting == 0 })
	operator := f.process()
	operator.oust(f.state(f.key).Token)
	if st := f.state(f.key); st.Held || st.Waiting != 0 {
		f.t.Errorf("after an oust, Inspect says %+v", st)
	}
	for _, l := range all {
		l.isLost()
	}
	next := f.process().take(f.key, f.long())
	next.rises(all[len(all)-1].Token, "of a lease that was taken from its holder")
	next.drop()
}

func oustServesTheWaiter(f *fixture) {
	a, b, operator := f.process(), f.process(), f.process()
	r := f.request(f.key, f.long())
	l, err := a.acquire(f.patient(), r)
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	told := a.sink.contention(l.ID)
	w := b.queue(f.key)
	l.reached(told, w)
	operator.oust(l.Token)
	next := w.granted(f.handOver(), "the waiter's grant after an oust")
	next.rises(l.Token, "of a lease that was taken from its holder")
	next.holds()
	l.told()
	next.drop()
	if _, err := a.acquire(f.prompt(), r); err == nil {
		f.t.Error("an owner whose lease was taken from it was granted the key again")
	}
	l.isLost()
}

func oustSparesWhoCameLater(f *fixture) {
	a, b, operator := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	for range 2 {
		operator.oust(l.Token)
	}
	next := b.take(f.key, f.long())
	operator.oust(l.Token) // as after a lost reply
	next.holds()
	next.drop()
	operator.oust(next.Token) // of a key that nobody holds
	a.take(f.key, f.long()).drop()
}
