// Package simulation is a server and a network that fail on purpose, in virtual
// time: the reference server behind links that delay, drop, double and re-order,
// with what happened kept for the checkers.
//
// A World runs inside a bubble of testing/synctest. All that it decides comes
// from its seed, and every delay ends on a nanosecond of its own, so that a seed
// replays as far as the code under test does not draw random numbers itself.
package simulation

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

// Faults says how often what goes wrong, as shares of all messages.
type Faults struct {
	LoseRequest float64 // it never arrives
	LoseReply   float64 // it is executed and nobody learns of it
	Late        float64 // it arrives when its sender has long given up
	Twice       float64 // it is executed again later, as client libraries do
	Partial     float64 // the connection breaks amid a batch
	Apart       float64 // one part of a batch arrives later than the other
	Stubborn    float64 // the client library holds on to a socket past its time
	Slow        float64 // it takes up to SlowBy
	LosePush    float64
	TwicePush   float64
	LatePush    float64

	SlowBy time.Duration
	LateBy time.Duration // at most, for requests, copies and pushes
}

// World is one server, the links to it and what happened. It is safe for
// concurrent use.
type World struct {
	History

	server *reference.Server

	mu     sync.Mutex
	seed   uint64
	links  int
	faults Faults
	down   bool
	offset time.Duration // of the server's clock
	rate   float64       // of the server's clock
	subs   []*subscription
}

// New returns a world whose server's clock runs at rate times the speed of
// everybody else's.
func New(seed uint64, faults Faults, rate float64) *World {
	w := &World{seed: seed, faults: faults, rate: rate}
	w.begin(time.Now())
	w.server = reference.New(w.clock)
	return w
}

func (w *World) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	elapsed := time.Duration(float64(time.Since(w.start)) * w.rate)
	return w.start.Add(elapsed + w.offset).Round(0)
}

// Fail has messages suffer other faults from now on.
func (w *World) Fail(f Faults) {
	w.mu.Lock()
	w.faults = f
	w.mu.Unlock()
	w.Note("the network's faults are %+v", f)
}

// Heal ends all faults of messages. Subscriptions that went deaf stay so.
func (w *World) Heal() {
	w.mu.Lock()
	w.faults = Faults{}
	w.mu.Unlock()
	w.Note("the network heals")
}

// StepClock moves the server's clock.
func (w *World) StepClock(by time.Duration) {
	w.mu.Lock()
	w.offset += by
	w.mu.Unlock()
	w.Note("the server's clock steps by %v", by)
}

// StopServer has every connection end and every request refused, until
// StartServer.
func (w *World) StopServer(loseData bool) {
	w.mu.Lock()
	w.down = true
	subs := w.subs
	w.subs = nil
	w.mu.Unlock()
	if loseData {
		w.server.Flush()
	}
	for _, s := range subs {
		s.end()
	}
	w.Note("the server stops; it loses its data: %v", loseData)
}

// StartServer ends what StopServer began.
func (w *World) StartServer() {
	w.mu.Lock()
	w.down = false
	w.mu.Unlock()
	w.Note("the server starts")
}

// Flush forgets all data, under everybody's feet.
func (w *World) Flush() {
	w.server.Flush()
	w.Note("the server loses its data")
}

// State returns what the server knows of a key as [protocol.Key] returns it, and
// the server's time in ms.
func (w *World) State(key string) (reference.State, int64) {
	return w.server.State(key), w.clock().UnixMilli()
}

var errRefused = errors.New("simulation: connection refused")

// execute runs steps of a batch one after the other and delivers what they publish.
func (w *World) execute(from int, cmds []Command, do []step, replies []Reply, how string) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	for _, s := range do {
		c, r := cmds[s.of], &replies[s.of]
		switch {
		case down:
			r.Err = errRefused
		case s.draws:
			id, err := w.server.Draw(c.Key, c.ID)
			if r.Drawn = id; err != nil && r.Err == nil {
				r.Err = err
			}
			w.drawn(from, c, id, w.server.State(c.Key), how)
		default:
			value, messages, err := w.server.Run(c.Script, c.Key, c.Args)
			r.Value, r.Err = value, err
			for _, m := range messages {
				w.publish(m)
			}
			w.executed(from, c, value, w.server.State(c.Key), how)
		}
	}
}

func (w *World) publish(m reference.Message) {
	w.mu.Lock()
	var to []*subscription
	for _, s := range w.subs {
		if s.channel == m.Channel {
			to = append(to, s)
		}
	}
	w.mu.Unlock()
	p, err := protocol.ParsePush(m.Payload)
	if err != nil {
		w.Violation("the server published what cannot be read: %v", err)
		return
	}
	if p.Kind == protocol.PushGrant {
		w.grant(string(p.Owner[:]), p.Token)
	}
	for _, s := range to {
		s.link.push(s, m.Payload, p)
	}
}

// after runs f later. No two of a world's timers end at the same time but by a
// rare accident.
func after(d time.Duration, f func()) { time.AfterFunc(d, f) }

// dice is a source of random numbers that several goroutines share.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) chance(share float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Float64() < share
}

// upTo returns a duration in (0, limit], in nanoseconds.
func (d *dice) upTo(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return 1 + time.Duration(d.r.Int64N(int64(limit)))
}

func (d *dice) intN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}
