package suites

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/hiccups"
)

// Holder is the name of a holder's role, see [child.Main], unless a store has another one.
const Holder = "holder"

// Crash kills processes that hold locks, and sees when the next one in the queue is granted
// the key. A driver's test makes it known to its holders too, which are processes of their own.
type Crash struct {
	Role string // empty for [Holder]
	// Open returns a driver for the store at an address, and what closes its client.
	Open func(addr string) (driver.Driver, func() error, error)
	TTL  time.Duration
	// After is how long after the TTL the next grant may come: the driver's bound. What
	// this machine oversleeps meanwhile comes on top.
	After time.Duration
}

// job is what a holder is told.
type job struct {
	Addr, Key string
	Keys      []string // instead of Key
}

// Hold is the role of a holder: it takes the lock, prints its token, and holds until its
// standard input ends, or it is killed. Of several keys it takes the locks over and over, also
// if a busy machine has lost it one of them.
func (s Crash) Hold(told string) error {
	var j job
	if err := json.Unmarshal([]byte(told), &j); err != nil {
		return err
	}
	d, _, err := s.Open(j.Addr)
	if err != nil {
		return err
	}
	locks, err := newEngine(d)
	if err != nil {
		return err
	}
	for len(j.Keys) > 0 {
		lease, err := locks.Acquire(context.Background(), core.Policy{Keys: j.Keys, TTL: s.TTL, Wait: core.Forever})
		if err == nil {
			fmt.Println(lease.Token())
			err = lease.Release(context.Background())
		}
		if err != nil && !errors.Is(err, core.ErrTimeout) && !errors.Is(err, core.ErrLost) {
			return err
		}
	}
	lease, err := locks.Acquire(context.Background(), core.Policy{Key: j.Key, TTL: s.TTL, Wait: core.Forever})
	if err != nil {
		return err
	}
	fmt.Println(lease.Token())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func newEngine(d driver.Driver) (*core.Engine, error) {
	return core.New(d, core.WithNamespace("test"), core.WithStoreTimeout(20*time.Second), core.WithLogger(slog.New(slog.DiscardHandler)))
}

// Run kills -9 one holder after the other, each of which somebody waits behind: few times,
// or 500 if full counts are asked for, or as many kills as LOCKAROUND_COUNTS says. It does so
// with some keys at a time, since it mostly waits.
func (s Crash) Run(t *testing.T, addr string, few int) {
	const lanes = 5
	kills := counts.Of(t, "kills", few, 500)
	d, disconnect, err := s.Open(addr)
	if err != nil {
		t.Fatal(err)
	}
	watched := &watched{Driver: d, queued: make(map[string]chan struct{})}
	locks, err := newEngine(watched)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(locks.Close(), disconnect()); err != nil {
			t.Errorf("close the engine and its client: %v", err)
		}
	}()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		left    = kills
		waits   []time.Duration
		machine = hiccups.Start(t)
	)
	draw := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0 && !t.Failed()
	}
	for lane := range min(lanes, kills) {
		running.Go(func() {
			key := fmt.Sprint("crash ", lane)
			for draw() {
				waited, err := s.kill(t, addr, locks, key, watched.channel(key))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				waits = append(waits, waited)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	if t.Failed() {
		return
	}
	slices.Sort(waits)
	median, longest := waits[len(waits)/2], waits[len(waits)-1]
	bound := s.TTL + s.After
	if !counts.Full(t) {
		bound += drivertest.Slack // it shares the machine with other tests
	}
	if limit := machine.Allow(bound); longest > limit {
		t.Errorf("the next grant came %v after a kill, want at most %v, or %v on this machine", longest, s.TTL+s.After, limit)
	}
	t.Attr("figure-7", fmt.Sprintf("%d holders killed; until the next grant %v, at most %v, where T + ε is %v (and the machine oversleeps by up to %v)",
		kills, median.Round(time.Millisecond), longest.Round(time.Millisecond), s.TTL+s.After, machine.Worst().Round(time.Millisecond)))
}

// kill kills one holder, and returns how long after it the next one was granted the key.
func (s Crash) kill(t *testing.T, addr string, locks *core.Engine, key string, queued chan struct{}) (waited time.Duration, err error) {
	for {
		h, err := child.Start(t, cmp.Or(s.Role, Holder), job{Addr: addr, Key: key})
		if err != nil {
			return 0, err
		}
		defer h.Kill()
		line, err := h.Out.ReadString('\n')
		if err != nil {
			return 0, fmt.Errorf("the holder ended without a lock: %w", err)
		}
		token, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return 0, err
		}
		for len(queued) > 0 {
			<-queued // of an acquisition that has its grant
		}
		type grant struct {
			*core.Lease
			at  time.Time
			err error
		}
		next := make(chan grant, 1)
		go func() {
			lease, err := locks.Acquire(context.Background(), core.Policy{Key: key, TTL: s.TTL, Wait: 2 * time.Minute})
			next <- grant{lease, time.Now(), err}
		}()
		var killed time.Time
		var got grant
		select {
		case <-queued:
			killed = time.Now()
			h.Kill()
			got = <-next
		case got = <-next:
			// This machine let the holder starve for a whole TTL. That it was succeeded is
			// right, but tells nothing about a kill.
			h.Kill()
		}
		if got.err != nil {
			return 0, fmt.Errorf("the grant after a kill: %w", got.err)
		}
		if got.Token() <= token {
			t.Errorf("token %d was granted after the killed holder's %d", got.Token(), token)
		}
		if err := got.Release(context.Background()); err != nil {
			return 0, fmt.Errorf("release: %w", err)
		}
		if killed.IsZero() {
			continue
		}
		return got.at.Sub(killed), nil
	}
}

// watched is a driver that tells when the store has put an acquisition into its queue.
type watched struct {
	driver.Driver
	mu     sync.Mutex
	queued map[string]chan struct{} // by key, as the test has it
}

func (d *watched) channel(key string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	key = "test/" + key
	if d.queued[key] == nil {
		d.queued[key] = make(chan struct{}, 16)
	}
	return d.queued[key]
}

// Open implements [driver.Driver].
func (d *watched) Open(c driver.Config) (driver.Session, error) {
	c.Sink = sink{c.Sink, d}
	return d.Driver.Open(c)
}

type sink struct {
	driver.Sink
	d *watched
}

// Waiting implements [driver.Sink].
func (s sink) Waiting(id driver.ID) {
	s.Sink.Waiting(id)
	s.d.mu.Lock()
	c := s.d.queued[id.Key]
	s.d.mu.Unlock()
	select {
	case c <- struct{}{}:
	default:
	}
}
