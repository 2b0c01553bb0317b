package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

// Command is one run of a script, or a token that is drawn.
type Command struct {
	Script string // its name; "" to draw only
	Key    string
	Args   []any
	Draw   bool   // right behind the script, though others' commands may come between
	ID     string // of what is drawn; "" for the server's choice
}

// Reply is what became of a command. SentOnce says that no copy of it is executed
// after the reply.
type Reply struct {
	Value    any
	Drawn    string
	Err      error
	SentOnce bool
}

// Link is one process's way to the server.
type Link struct {
	world   *World
	process int
	dice    dice

	mu     sync.Mutex
	cut    bool
	frozen time.Time // until when
	ended  map[string]time.Time
}

// Link returns a new process's link.
func (w *World) Link() *Link {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links++
	return &Link{
		world:   w,
		process: w.links,
		dice:    dice{r: rand.New(rand.NewPCG(w.seed, uint64(w.links)))},
		ended:   make(map[string]time.Time),
	}
}

// Jitter returns a number in [0, 1).
func (l *Link) Jitter() float64 {
	l.dice.mu.Lock()
	defer l.dice.mu.Unlock()
	return l.dice.r.Float64()
}

// Cut ends the process: nothing it sends arrives, nothing reaches it. What is on
// its way to the server may still be executed.
func (l *Link) Cut() {
	l.mu.Lock()
	l.cut = true
	l.mu.Unlock()
	l.Break()
	l.world.Note("process %d dies", l.process)
}

// Freeze holds back all that the process sends and is sent.
func (l *Link) Freeze(d time.Duration) {
	l.mu.Lock()
	l.frozen = time.Now().Add(d)
	l.mu.Unlock()
	l.world.Note("process %d is cut off for %v", l.process, d)
}

// Break ends the process's subscriptions with an error.
func (l *Link) Break() {
	for _, s := range l.subscriptions(true) {
		s.end()
	}
	l.world.Note("the subscription of process %d breaks", l.process)
}

// Deafen has the process's subscriptions receive nothing any more, without an
// error, as one that stayed with a server that is no longer the master.
func (l *Link) Deafen() {
	l.subscriptions(true)
	l.world.Note("the subscription of process %d goes deaf", l.process)
}

func (l *Link) subscriptions(remove bool) []*subscription {
	w := l.world
	w.mu.Lock()
	defer w.mu.Unlock()
	var mine []*subscription
	for _, s := range w.subs {
		if s.link == l {
			mine = append(mine, s)
		}
	}
	if remove {
		w.subs = slices.DeleteFunc(slices.Clone(w.subs), func(s *subscription) bool { return s.link == l })
	}
	return mine
}

// thaw returns how long the process is still frozen.
func (l *Link) thaw() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.frozen), 0)
}

func (l *Link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// trip is a usual one-way delay.
func (l *Link) trip(f Faults) time.Duration {
	d := 50*time.Microsecond + l.dice.upTo(time.Millisecond)
	if l.dice.chance(f.Slow) {
		d += l.dice.upTo(f.SlowBy)
	}
	return d
}

func (l *Link) faults() Faults {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	return l.world.faults
}

var (
	errReset = errors.New("simulation: connection reset")
	errGone  = errors.New("simulation: no route to the server")
)

// ObeysContext reports whether Run returns when its ctx ends, as far as the weather goes.
func (l *Link) ObeysContext() bool { return l.faults().Stubborn == 0 }

// Run sends a batch and waits for the replies, or for ctx.
func (l *Link) Run(ctx context.Context, cmds []Command) []Reply {
	cmds = asSent(cmds)
	l.watch(cmds)
	if l.isCut() {
		<-ctx.Done()
		return fail(cmds, errGone)
	}
	f := l.faults()
	answers := make(chan []Reply, 1)
	out := l.thaw() + l.trip(f)
	if l.dice.chance(f.Late) {
		out += l.dice.upTo(f.LateBy)
	}
	if l.dice.chance(f.LoseRequest) {
		l.breakOff(cmds, out, f, answers)
	} else {
		after(out, func() { l.arrive(cmds, f, answers) })
	}
	select {
	case r := <-answers:
		return r
	case <-ctx.Done():
	}
	if l.dice.chance(f.Stubborn) {
		select {
		case r := <-answers:
			return r
		case <-time.After(l.dice.upTo(f.LateBy)):
		}
	}
	return fail(cmds, ctx.Err())
}

// asSent returns commands whose arguments are texts: the sender may use the memory of
// what was sent for something else, and copies arrive later.
func asSent(cmds []Command) []Command {
	sent := slices.Clone(cmds)
	for i, c := range sent {
		words, err := reference.Words(c.Args)
		if err != nil {
			panic(err)
		}
		sent[i].Args = make([]any, len(words))
		for j, word := range words {
			sent[i].Args[j] = word
		}
	}
	return sent
}

// step is what the server does at once: a command's script, or the token that is drawn behind it.
type step struct {
	of    int
	draws bool
}

func steps(cmds []Command) (all []step) {
	for i, c := range cmds {
		if c.Script != "" {
			all = append(all, step{i, false})
		}
		if c.Draw {
			all = append(all, step{i, true})
		}
	}
	return all
}

// arrive executes a batch at the server. What the connection delivers later comes after other
// processes' commands.
func (l *Link) arrive(cmds []Command, f Faults, answers chan<- []Reply) {
	w, all := l.world, steps(cmds)
	if len(all) > 1 && l.dice.chance(f.Partial) {
		all = all[:l.dice.intN(len(all))]
	}
	replies := make([]Reply, len(cmds))
	first, gap := len(all), time.Duration(0)
	if len(all) > 1 && l.dice.chance(f.Apart) {
		first, gap = 1+l.dice.intN(len(all)-1), l.dice.upTo(f.SlowBy)
	}
	w.execute(l.process, cmds, all[:first], replies, "")
	rest := func() {
		w.execute(l.process, cmds, all[first:], replies, "")
		twice := l.dice.chance(f.Twice)
		if twice {
			after(l.dice.upTo(f.LateBy), func() { w.execute(l.process, cmds, all, make([]Reply, len(cmds)), " again") })
		}
		if len(all) < len(steps(cmds)) || l.dice.chance(f.LoseReply) {
			l.breakOff(cmds, 0, f, answers)
			return
		}
		for i := range replies {
			replies[i].SentOnce = !twice && replies[i].Err == nil
		}
		l.deliver(l.trip(f), func() {
			w.ended(cmds, replies)
			answers <- replies
		})
	}
	if gap > 0 {
		after(gap, rest)
	} else {
		rest()
	}
}

// breakOff has a request go without an answer: until its sender gives up, or
// with an error.
func (l *Link) breakOff(cmds []Command, sooner time.Duration, f Faults, answers chan<- []Reply) {
	if l.dice.chance(0.5) {
		l.deliver(sooner+l.trip(f), func() { answers <- fail(cmds, errReset) })
	}
}

// deliver runs f at the process, later, unless it is dead by then.
func (l *Link) deliver(d time.Duration, f func()) {
	after(d, func() {
		switch held := l.thaw(); {
		case l.isCut():
		case held > 0:
			l.deliver(held+l.dice.upTo(time.Millisecond), f)
		default:
			f()
		}
	})
}

func fail(cmds []Command, err error) []Reply {
	out := make([]Reply, len(cmds))
	for i := range out {
		out[i].Err = err
	}
	return out
}

// OwnerGrace is how long after an owner's end was sent an earlier call of it may
// still leave: what had been on its way to the wire.
const OwnerGrace = 4 * time.Second

// watch notes what is sent, and that no owner is used once it has ended.
func (l *Link) watch(cmds []Command) {
	now := time.Now()
	l.world.sent()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cmds {
		if len(c.Args) == 0 {
			continue
		}
		owner, _ := owner(c)
		at, ended := l.ended[owner]
		switch {
		case c.Script == protocol.End.Name && !ended:
			l.ended[owner] = now
		case c.Script != protocol.End.Name && ended && now.Sub(at) > OwnerGrace:
			l.world.Violation("process %d sends %s for owner %s, %v after its end", l.process, c.Script, short(owner), now.Sub(at))
		}
	}
}

// subscription is a connection that receives one channel's messages.
type subscription struct {
	link    *Link
	channel string
	inbox   chan string
	broken  chan struct{}
	once    sync.Once
}

func (s *subscription) end() { s.once.Do(func() { close(s.broken) }) }

// Listen subscribes, calls up, and then message for each message, until the
// subscription breaks or ctx ends.
func (l *Link) Listen(ctx context.Context, channel string, up func(), message func(payload string)) error {
	w := l.world
	arrived := time.NewTimer(l.thaw() + l.trip(l.faults()))
	defer arrived.Stop()
	select {
	case <-arrived.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.isCut() {
		<-ctx.Done()
		return errGone
	}
	s := &subscription{link: l, channel: channel, inbox: make(chan string, 1024), broken: make(chan struct{})}
	w.mu.Lock()
	if w.down {
		w.mu.Unlock()
		return errRefused
	}
	w.subs = append(slices.Clone(w.subs), s)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.subs = slices.DeleteFunc(slices.Clone(w.subs), func(o *subscription) bool { return o == s })
		w.mu.Unlock()
	}()
	w.Note("process %d is subscribed", l.process)
	up()
	for {
		select {
		case payload := <-s.inbox:
			message(payload)
		case <-s.broken:
			return errReset
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// push delivers a message to a subscription, or does not.
func (l *Link) push(s *subscription, payload string, p protocol.Push) {
	f := l.faults()
	if l.dice.chance(f.LosePush) {
		l.world.Note("push %c for owner %s of process %d is lost", p.Kind, short(string(p.Owner[:])), l.process)
		return
	}
	copies := 1
	if l.dice.chance(f.TwicePush) {
		copies = 2
	}
	for range copies {
		d := l.trip(f)
		if l.dice.chance(f.LatePush) {
			d += l.dice.upTo(f.LateBy)
		}
		l.deliver(d, func() {
			select {
			case <-s.broken:
				return
			default:
			}
			select {
			case s.inbox <- payload:
				l.world.pushed(l.process, p)
			default: // a client that does not read
			}
		})
	}
}
