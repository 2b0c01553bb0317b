package redislock_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// waitersRole makes a child a process of callers that want one key again and again.
const waitersRole = "waiter"

// waiters is what such a process is told.
type waiters struct {
	Addr    string
	Callers int
	Turns   int           // of each caller
	Holds   time.Duration // in each turn
}

// turn is one acquisition.
type turn struct {
	Token   int64
	Waited  time.Duration
	process int
}

// waitInTurn plays the role: it says that it is ready, begins when it is told to, and
// prints its turns.
func waitInTurn(told string) error {
	var w waiters
	if err := json.Unmarshal([]byte(told), &w); err != nil {
		return err
	}
	locks, err := engineOfAChild(w.Addr)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := locks.Ping(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	turns := make([][]turn, w.Callers)
	failures := make(chan error, w.Callers)
	gather(w.Callers, func(i int) {
		for range w.Turns {
			start := time.Now()
			lease, err := locks.Acquire(ctx, core.Policy{Key: "k", Wait: core.Forever})
			if err == nil {
				turns[i] = append(turns[i], turn{Token: lease.Token(), Waited: time.Since(start)})
				<-time.After(w.Holds)
				err = lease.Release(ctx)
			}
			if err != nil {
				failures <- err
				return
			}
		}
	})
	close(failures)
	for err := range failures {
		return err
	}
	if err := locks.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(slices.Concat(turns...))
}

// TestThousandWaitersInTwentyProcessesCostTwoCommandsAHandOver has callers of several
// processes want one key all the time: few of them, or a thousand in twenty processes if
// full counts are asked for. Then nobody waits longer than ten times the median.
func TestThousandWaitersInTwentyProcessesCostTwoCommandsAHandOver(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	processes, w := 4, waiters{Addr: testservers.Redis(t).Addr(), Callers: 50, Turns: 5, Holds: time.Millisecond}
	if counts.Full(t) {
		processes, w.Turns = 20, 20
	}
	var all []*child.Process
	for range processes {
		p, err := child.Start(t, waitersRole, w)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for _, p := range all {
		if line, err := p.Out.ReadString('\n'); err != nil {
			t.Fatalf("a process of waiters says %q: %v", line, err)
		}
	}
	// None begins before all of them wait.
	first := join(t, w.Addr)
	g := first.take("test/k", lasting)
	for _, p := range all {
		if _, err := fmt.Fprintln(p.In, "go"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a waiter in each process", func() bool {
		st, err := first.Inspect(bounded(t), "test/k")
		if err != nil {
			t.Fatal(err)
		}
		return st.Waiting == processes
	})
	client := newClient(t, redis.Options{Addr: w.Addr})
	before, began := commands(t, client), time.Now()
	first.release(g)
	var mu sync.Mutex
	var turns []turn
	gather(len(all), func(i int) {
		var mine []turn
		if err := json.NewDecoder(all[i].Out).Decode(&mine); err != nil {
			t.Errorf("what process %d says: %v", i, err)
			return
		}
		for n := range mine {
			mine[n].process = i
		}
		mu.Lock()
		defer mu.Unlock()
		turns = append(turns, mine...)
	})
	if t.Failed() {
		return
	}
	after, took := commands(t, client), time.Since(began)
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.Token, b.Token) })
	handOvers := 0
	for i := 1; i < len(turns); i++ {
		if turns[i].process != turns[i-1].process {
			handOvers++
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.Waited, b.Waited) })
	median, longest := turns[len(turns)/2].Waited, turns[len(turns)-1].Waited
	sent := scripts(after) - scripts(before)
	if handOvers < processes {
		t.Errorf("only %d hand-overs among %d processes, so that nothing was tested", handOvers, processes)
	}
	each := float64(sent) / float64(handOvers)
	t.Attr("figure-18", fmt.Sprintf("%d waiters in %d processes, %d turns: %d hand-overs to another process, %.2f commands to the store for each; median wait %v, the longest %.1f times that",
		processes*w.Callers, processes, len(turns), handOvers, each, median.Round(10*time.Microsecond), float64(longest)/float64(median)))
	// A busy machine makes the processes wait long enough to refresh their places, and takes
	// subscriptions for deaf.
	more := 0.0
	if !counts.Full(t) {
		refreshes := float64(processes) * (1 + float64(took)/float64(protocol.MaxPlaceTTL/4))
		more = (refreshes + float64(2*(after["subscribe"]-before["subscribe"]))) / float64(handOvers)
	}
	if each > 2+more {
		t.Errorf("%.2f commands for each hand-over, want at most 2, or %.2f on this machine", each, 2+more)
	}
	if counts.Full(t) && longest > 10*median {
		t.Errorf("somebody waited %v, more than ten times the median of %v", longest, median)
	}
}
