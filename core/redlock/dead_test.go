package redlock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// TestTwoOfFiveDeadAndOneBackEmptyLetNobodyInTwice has callers of three processes use two
// keys, while two of five nodes are killed and a third one is restarted empty, and then the
// other two: 1 time, or 100 if full counts are asked for, or as often as
// LOCKAROUND_COUNTS says of rounds. Nodes that have lost their data stay out for the largest TTL.
func TestTwoOfFiveDeadAndOneBackEmptyLetNobodyInTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for seconds")
	}
	t.Parallel()
	const lease, enough = time.Second, 10
	rounds := counts.Of(t, "rounds", 1, 100)
	f := startFleet(t, 5)
	var seen crowd
	var running sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		p := join(t, f.direct, WithRestartDelay(lease))
		running.Go(func() { p.hearNothing(stop) })
		for n := range 4 {
			running.Go(func() { seen.use(p, fmt.Sprint("k", n%2), lease, stop) })
		}
	}
	progress := func(what string) {
		t.Helper()
		at := seen.number()
		eventually(t, what, func() bool { return seen.number() >= at+enough })
	}
	progress("grants by nodes that are new")
	for range rounds {
		which := rand.Perm(5)
		f.servers[which[0]].Kill()
		f.servers[which[1]].Kill()
		progress("grants with two dead nodes")
		f.servers[which[2]].Restart()
		progress("grants with two dead nodes and one that is back empty")
		f.servers[which[0]].Restart()
		f.servers[which[1]].Restart()
		progress("grants with two more that are back empty")
		<-time.After(lease + lease/4) // and all have a vote
	}
	close(stop)
	running.Wait()
	overlaps, regressions := seen.verify(t)
	t.Attr("figure-16", fmt.Sprintf("%d times two of five nodes killed, a third one restarted empty, and then those two: %d grants, %d overlaps, %d token regressions; longest time without a grant %v",
		rounds, seen.number(), overlaps, regressions, seen.longest.Round(time.Millisecond)))
}

// hearNothing takes what the session is told, until stop is closed.
func (p *peer) hearNothing(stop <-chan struct{}) {
	for {
		select {
		case <-p.sink.waiting:
		case <-p.sink.lost:
		case <-stop:
			return
		}
	}
}

// crowd is what happens to keys that many want. Claims last from the return of an
// acquisition to the call of the release, or the deadline if that is sooner.
type crowd struct {
	mu      sync.Mutex
	claims  map[string][]span
	n       int
	last    time.Time
	longest time.Duration // between two grants
}

func (c *crowd) number() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// use takes the key and gives it back until stop is closed. What fails is asked for anew.
func (c *crowd) use(p *peer, key string, ttl time.Duration, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		g, err := p.wait(key, ttl)
		if err != nil {
			<-time.After(5 * time.Millisecond) // there may be no majority
			continue
		}
		from := time.Now()
		length := time.Duration(rand.Int64N(int64(4 * time.Millisecond)))
		if rand.IntN(20) == 0 {
			length = time.Duration(rand.Int64N(int64(ttl)))
		}
		<-time.After(length)
		deadline := g.Deadline
		if length > ttl/3 && driver.Remaining(deadline, time.Now()) > 0 {
			if out := p.renew(g, ttl); out.Err == nil {
				deadline = driver.Later(deadline, out.Deadline)
				<-time.After(ttl / 3)
			}
		}
		c.claim(key, span{from, earlier(deadline, time.Now()), g.Token})
		_ = p.Release(within(p.t, patience), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: deadline}}) // nodes are dead
	}
}

func (c *crowd) claim(key string, s span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims == nil {
		c.claims = make(map[string][]span)
	}
	c.claims[key] = append(c.claims[key], s)
	if c.n++; c.n > 1 {
		c.longest = max(c.longest, s.from.Sub(c.last))
	}
	c.last = s.from
}

// verify fails the test if claims of a key overlap or their tokens do not rise.
func (c *crowd) verify(t testing.TB) (overlaps, regressions int) {
	for key, all := range c.claims {
		over, back := judge(all)
		for _, fault := range slices.Concat(over, back) {
			t.Errorf("%s: %s", key, fault)
		}
		overlaps += len(over)
		regressions += len(back)
	}
	return overlaps, regressions
}
