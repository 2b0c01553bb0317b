package redislock_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
	"github.com/lockaround/lockaround/core/redislock/internal/simulation"
)

// weather is what a schedule does to the server, and with it what must hold.
type weather uint8

const (
	calm   weather = iota // nothing fails
	faulty                // everything but the server's data and clock
	lossy                 // the server loses data too
	astray                // the server's clock steps too
)

func (w weather) String() string { return [...]string{"calm", "faulty", "lossy", "astray"}[w] }

// schedule is one run: processes, what they do and what is done to them.
type schedule struct {
	*simulation.World
	t       *testing.T
	rand    *rand.Rand // of the schedule's own goroutine
	weather weather
	faults  simulation.Faults
	rate    float64
	timeout time.Duration // of the store
	keys    []string
	uses    []use // how callers take a key, each as likely
	strict  bool
	several bool // callers may take several keys at once
	ttls    []time.Duration
	callers int           // of each process
	minHold time.Duration // at most
	deaf    bool          // pushes to a process were lost without an error

	disturbed time.Duration // how long there are faults
	healthy   time.Time     // when all their consequences are over
	end       time.Time     // when callers stop

	mu        sync.Mutex
	processes []*simProcess
	running   sync.WaitGroup // callers
	closing   sync.WaitGroup // engines
}

// use is a mode of a lock, and how many that lets hold together: 0 is any number.
type use struct {
	mode core.Mode
	room int
}

var (
	write   = use{core.Exclusive, 1}
	read    = use{core.Shared, 0}
	permit2 = use{core.Semaphore, 2}
	permit3 = use{core.Semaphore, 3}
)

const (
	simNamespace = "sim"
	returnGrace  = 50 * time.Millisecond
)

func newSchedule(t *testing.T, seed uint64) *schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &schedule{t: t, rand: r, rate: 1 + 0.016*(r.Float64()-0.5)}
	switch n := r.IntN(20); {
	case n < 3:
		s.weather = calm
	case n < 15:
		s.weather = faulty
	case n < 18:
		s.weather = lossy
	default:
		s.weather = astray
	}
	ms := func(choice ...int) time.Duration {
		return time.Duration(choice[r.IntN(len(choice))]) * time.Millisecond
	}
	s.timeout = ms(300, 1000)
	s.ttls = []time.Duration{ms(200, 500, 1000), ms(1000, 3000, 4000)}
	s.keys = []string{"stock:1", "stock:2"}[:1+r.IntN(2)]
	s.callers = 1 + r.IntN(4)
	s.minHold = ms(0, 400)
	s.uses = [][]use{{write}, {write}, {write, read}, {write, read, read, read}, {permit2}, {permit3, permit3, write}, {write, read, permit2, permit2}}[r.IntN(7)]
	s.strict = r.IntN(5) == 0
	if s.several = len(s.keys) > 1 && r.IntN(3) == 0; s.several && r.IntN(2) == 0 {
		s.keys = append(s.keys, "stock:3", "stock:4")
	}
	if s.weather != calm {
		share := func() float64 { return []float64{0, 0, 0.01, 0.04, 0.12}[r.IntN(5)] }
		s.faults = simulation.Faults{
			LoseRequest: share(), LoseReply: share(), Late: share(), Twice: share(), Partial: share(), Apart: share(), Stubborn: share(), Slow: share(),
			LosePush: share(), TwicePush: share(), LatePush: share(), SlowBy: ms(20, 200, 800), LateBy: ms(300, 2000, 5000),
		}
		s.disturbed = time.Duration(2000+r.IntN(5000)) * time.Millisecond
	}
	s.World = simulation.New(seed, s.faults, s.rate)
	return s
}

// plan describes the schedule.
func (s *schedule) plan() string {
	return fmt.Sprintf("%v weather for %v, rate %.4f, store timeout %v, TTLs %v, %d keys, %d callers in each process, uses %v, strict %t, several keys %t, %+v",
		s.weather, s.disturbed, s.rate, s.timeout, s.ttls, len(s.keys), s.callers, s.uses, s.strict, s.several, s.faults)
}

func (s *schedule) rules() simulation.Rules {
	r := simulation.Rules{Exclusive: s.weather == calm || s.weather == faulty, Grace: returnGrace}
	// Who waits for one of several keys holds others, which the history does not show.
	if !s.several {
		r.Healthy = s.healthy
	}
	// The end of a kept key is pushed to nobody, and pushes to a deaf
	// subscription do not arrive: then the waiters' own refreshes count.
	r.Wake = s.minHold + 100*time.Millisecond
	if s.weather != calm || s.minHold > 0 {
		r.Wake += redislock.New(nil).Capabilities().Wake
	}
	if s.deaf { // who does not hear that others want the key lets its lease linger
		r.Wake += s.ttls[1]
	}
	return r
}

func (s *schedule) run() {
	started := time.Now()
	consequences := time.Duration(0)
	if s.weather != calm {
		consequences = s.ttls[1] + protocol.MaxPlaceTTL + s.faults.LateBy + 2*s.timeout
	}
	s.healthy = started.Add(s.disturbed + consequences)
	s.end = s.healthy.Add(3 * time.Second)
	if s.weather == calm {
		s.end = s.healthy.Add(10 * time.Second)
	}
	for range 2 + s.rand.IntN(2) {
		s.join()
	}
	if s.weather != calm {
		s.disturb(started.Add(s.disturbed))
		s.StartServer()
		s.Heal()
	}
	s.running.Wait()
	s.settle()
	for _, p := range s.live() {
		p.close(true)
	}
	s.closing.Wait()
	if n := s.Counts()["granted"]; n < 8 {
		s.Violation("only %d locks were granted: the schedule shows nothing", n)
	}
}

// settle waits until all that is left of the callers must be over, and checks
// that it is.
func (s *schedule) settle() {
	time.Sleep(s.ttls[1] + s.minHold + protocol.MaxPlaceTTL + s.faults.LateBy + 4*s.timeout)
	for _, key := range s.keys {
		st, now := s.State(protocol.Key(simNamespace + "/" + key))
		for _, h := range st.Holders {
			if h.Expires > now {
				s.Violation("after everybody has gone %s is still held for %d ms", key, h.Expires-now)
			}
		}
		for _, p := range st.Queue {
			if p.Limit > now {
				s.Violation("after everybody has gone somebody waits for %s", key)
			}
		}
	}
	sends := s.Sends()
	time.Sleep(20 * time.Second)
	if n := s.Sends() - sends; n > 0 {
		s.Violation("%d batches were sent after everybody had gone", n)
	}
	if s.weather == astray {
		return // a token may be ahead of the clock for as long as that has gone back
	}
	time.Sleep(protocol.Linger)
	for _, key := range s.keys {
		if st, _ := s.State(protocol.Key(simNamespace + "/" + key)); !reflect.DeepEqual(st, reference.State{}) {
			s.Violation("long after everybody has gone the server has %+v of %s", st, key)
		}
	}
}

// disturb does things to processes and the server, and returns at the time end.
func (s *schedule) disturb(end time.Time) {
	for {
		pause := time.Duration(s.rand.Int64N(int64(1500 * time.Millisecond)))
		if time.Now().Add(pause).After(end) {
			time.Sleep(time.Until(end))
			return
		}
		time.Sleep(pause)
		live := s.live()
		p := live[s.rand.IntN(len(live))]
		span := min(time.Duration(s.rand.Int64N(int64(2*s.ttls[s.rand.IntN(2)]))), time.Until(end))
		switch s.rand.IntN(10) {
		case 0, 1:
			p.link.Freeze(span)
		case 2:
			p.link.Break()
		case 3:
			p.link.Deafen()
			s.deaf = true
		case 4:
			p.die()
			s.join()
		case 5:
			p.close(false)
			s.join()
		case 6:
			loses := s.weather == lossy
			s.StopServer(loses)
			time.Sleep(span)
			s.StartServer()
		case 7:
			if s.weather == lossy {
				s.Flush()
			}
		case 8:
			if s.weather == astray {
				s.StepClock(time.Duration(s.rand.Int64N(int64(20*time.Second))) - 10*time.Second)
			}
		case 9:
			if s.weather == lossy {
				s.oust(p)
			}
		}
	}
}

// oust has a process take a key from whoever holds it.
func (s *schedule) oust(p *simProcess) {
	key := s.keys[s.rand.IntN(len(s.keys))]
	s.running.Go(func() {
		start := time.Now()
		token, err := p.engine.ForceRelease(p.ctx, key)
		s.Note("process %d: %s is released by force, token %d: %v", p.id, key, token, err)
		// It looks, takes the key away, and looks which token that lease had: each has the store timeout.
		if took := time.Since(start); took > 3*s.timeout+returnGrace {
			s.Violation("process %d took %v to release by force", p.id, took)
		}
		if err == nil {
			s.Count("ousted")
		}
	})
}

// simProcess is one process: an engine, its link and its callers.
type simProcess struct {
	s      *schedule
	id     int
	link   *simulation.Link
	engine *core.Engine
	ctx    context.Context // ends when the process dies
	kill   context.CancelFunc

	mu     sync.Mutex
	over   bool
	closed time.Time // when Close was called or the process died
}

// join starts a process with its callers.
func (s *schedule) join() {
	link := s.Link()
	d := redislock.New(nil, redislock.WithLink(link), redislock.WithJitter(link.Jitter))
	e, err := core.New(d, core.WithNamespace(simNamespace), core.WithForceRelease(), core.WithStoreTimeout(s.timeout), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		s.t.Fatal(err)
	}
	p := &simProcess{s: s, link: link, engine: e}
	p.ctx, p.kill = context.WithCancel(context.Background())
	s.mu.Lock()
	p.id = len(s.processes) + 1
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	for range s.callers {
		c := &caller{p: p, rand: rand.New(rand.NewPCG(s.rand.Uint64(), 1))}
		s.running.Go(c.run)
	}
}

// live returns the processes that are not over.
func (s *schedule) live() []*simProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*simProcess
	for _, p := range s.processes {
		if !p.isOver() {
			out = append(out, p)
		}
	}
	return out
}

func (p *simProcess) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

func (p *simProcess) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over, p.closed = true, time.Now()
}

// die ends the process as a kill does. Its engine is closed only so that its
// goroutines end: nothing of it gets through any more.
func (p *simProcess) die() {
	p.leave()
	p.link.Cut()
	p.kill()
	p.s.Count("died")
	p.s.closing.Go(func() { _ = p.engine.Close() })
}

// close ends the process in good order.
func (p *simProcess) close(last bool) {
	p.leave()
	p.s.Count("closed")
	p.s.Note("process %d closes", p.id)
	p.s.closing.Go(func() {
		start := time.Now()
		err := p.engine.Close()
		if took := time.Since(start); took > 2*p.s.timeout+2*returnGrace {
			p.s.Violation("process %d took %v to close", p.id, took)
		}
		if err != nil && last {
			p.s.Violation("process %d closes with %v", p.id, err)
		}
	})
}
