package redlock

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// TestNodeKeepsAKeyForAnHourAfterItsLease takes keys through lives of several lengths, and sees
// after each step how long the server keeps what it knows.
func TestNodeKeepsAKeyForAnHourAfterItsLease(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	w, client := newClientWire(f.direct[0], patience), f.direct[0]
	run := func(c command) {
		t.Helper()
		r := w.run(within(t, patience), []command{c})[0]
		if r.err != nil || r.status != statusGranted && r.status != statusEnded {
			t.Fatalf("%+v: %s, %v", c, r.status, r.err)
		}
	}
	const short, long, longer = time.Minute, 10 * time.Minute, 3 * time.Hour
	for name, lives := range map[string][]struct {
		ttl, renewed, keep time.Duration // renewed, keep: 0 is not
		traced             bool
	}{
		"short ones":       {{ttl: short}, {ttl: short}, {ttl: short, traced: true}, {ttl: 4 * short}, {ttl: time.Second}, {ttl: 6 * short}},
		"one length":       {{ttl: long}, {ttl: long}, {ttl: long, traced: true}, {ttl: long}},
		"ever longer":      {{ttl: time.Second}, {ttl: long}, {ttl: longer, traced: true}, {ttl: 2 * longer}},
		"ever shorter":     {{ttl: longer}, {ttl: long}, {ttl: time.Second}},
		"renewed":          {{ttl: time.Second, renewed: long}, {ttl: long, renewed: longer}, {ttl: longer}},
		"kept":             {{ttl: time.Second, keep: long}},
		"kept, then short": {{ttl: long}, {ttl: long, keep: longer}},
	} {
		for i, life := range lives {
			c := command{key: name, owner: newOwner(), channel: "lr1:c", placeTTL: time.Second}
			if life.traced {
				c.trace = new(driver.Trace)
			}
			isKept := func(when string, until time.Time) {
				t.Helper()
				least := time.Until(until) + time.Hour - time.Second
				left := client.PTTL(t.Context(), hashPrefix+name).Val()
				if left < least || left > least+10*time.Minute+2*longer {
					t.Errorf("%s, life %d, %s: kept for %v; want %v", name, i, when, left, least)
				}
			}
			step := func(op operation, ttl time.Duration) {
				t.Helper()
				c.op, c.ttl = op, ttl
				if op == opVote { // larger than those before, and than the time at which the data began
					c.token = time.Now().UnixMicro()
				}
				run(c)
				until := time.Now()
				if op != opEnd {
					until = until.Add(ttl)
				} else if life.keep > 0 {
					until = until.Add(life.keep)
				}
				isKept(string(op), until)
			}
			step(opVote, life.ttl)
			if life.renewed > 0 {
				step(opRenew, life.renewed)
			}
			c.keep = life.keep
			step(opEnd, life.ttl)
		}
	}
}

// TestTimeOfBeforeTheClockWentBackIsNotBelieved leaves what a node has that has served a key for a
// while, and whose clock has gone back since.
func TestTimeOfBeforeTheClockWentBackIsNotBelieved(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	client := f.direct[0]
	const long = 2 * time.Hour
	c := command{op: opVote, key: "k", owner: newOwner(), ttl: time.Second, placeTTL: time.Second}
	for range 3 { // the first finds no marker, the second writes the fields, the third believes them
		c.token = time.Now().UnixMicro()
		run := newClientWire(client, patience).run(within(t, patience), []command{c, {op: opEnd, key: "k", owner: c.owner}})
		if run[0].status != statusGranted || run[1].status != statusEnded {
			t.Fatalf("%+v", run)
		}
		c.owner, c.ttl = newOwner(), long
		client.HSet(t.Context(), hashPrefix+"k", "k", time.Now().Add(4*long).UnixMilli())
		client.PExpire(t.Context(), hashPrefix+"k", time.Hour)
	}
	c.token = time.Now().UnixMicro()
	if r := newClientWire(client, patience).run(within(t, patience), []command{c})[0]; r.status != statusGranted {
		t.Fatal(r.status, r.err)
	}
	if left := client.PTTL(t.Context(), hashPrefix+"k").Val(); left < long {
		t.Errorf("a vote of %v is kept for %v", long, left)
	}
}

// TestHashOutlivesItsVoteThoughTheClockGoesBackAndForth renews a lease while the node's clock is an
// hour behind, which keeps the hash for a shorter time, and votes when it is right again.
func TestHashOutlivesItsVoteThoughTheClockGoesBackAndForth(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	n := newClockedNode(t, f.servers[0])
	at := time.Now()
	run := func(op operation, owner driver.Owner, ttl time.Duration) {
		t.Helper()
		c := command{op: op, key: "k", owner: owner, ttl: ttl, placeTTL: time.Second, token: at.UnixMicro()}
		if op == opRenew {
			c.token = 1
		}
		if a, _ := n.execute(t, at, &c); a.status != statusGranted && a.status != statusEnded {
			t.Fatalf("%s: %s", op, a.status)
		}
	}
	a, b, last := newOwner(), newOwner(), newOwner()
	run(opVote, a, time.Second)
	run(opEnd, a, 0)
	at = at.Add(time.Second)
	run(opVote, b, time.Second)
	at = at.Add(-64 * time.Minute)
	run(opRenew, b, time.Second)
	run(opEnd, b, 0)
	n.client.PExpire(t.Context(), hashPrefix+"k", n.client.PTTL(t.Context(), hashPrefix+"k").Val()-64*time.Minute)
	at = at.Add(64*time.Minute + time.Second)
	run(opVote, last, 4*time.Minute)
	if left := n.client.PTTL(t.Context(), hashPrefix+"k").Val(); left < 4*time.Minute {
		t.Errorf("a vote of 4m is kept for %v", left)
	}
}

// TestReleasedVoteLeavesNoToken ends votes on both paths. Clients of other releases take a token for
// that of a lease though nobody has the vote, and count from its grant how long to keep a key.
func TestReleasedVoteLeavesNoToken(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	for name, keep := range map[string]time.Duration{"short": 0, "general": time.Millisecond} {
		owner := newOwner()
		vote := command{op: opVote, key: name, owner: owner, ttl: ttl, placeTTL: time.Second, token: time.Now().Add(time.Second).UnixMicro()}
		w := newClientWire(f.direct[0], patience)
		if r := w.run(within(t, patience), []command{vote})[0]; r.accepted != vote.token {
			t.Fatalf("%s: %s, %v", name, r.status, r.err)
		}
		time.Sleep(10 * time.Millisecond) // longer than the key is kept
		if r := w.run(within(t, patience), []command{{op: opEnd, key: name, owner: owner, keep: keep}})[0]; r.status != statusEnded {
			t.Fatalf("%s: %s, %v", name, r.status, r.err)
		}
		if a := f.direct[0].HGet(t.Context(), hashPrefix+name, "a").Val(); a != "0" {
			t.Errorf("%s: the token of a released vote is %q, want 0", name, a)
		}
	}
}

// TestNodeOutOfMemoryFreesWhatIsReleased shows that a server that refuses writes lets leases end.
func TestNodeOutOfMemoryFreesWhatIsReleased(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	a := join(t, f.direct)
	grants := []driver.Grant{a.take("k", ttl), a.take("other", ttl)}
	eventually(t, "all votes", func() bool { return f.votes(t, "k") == 3 && f.votes(t, "other") == 3 })
	limit := func(bytes int) {
		for _, s := range f.servers {
			if said, err := s.Do("CONFIG", "SET", "maxmemory", strconv.Itoa(bytes)); err != nil {
				t.Fatal(said, err)
			}
		}
	}
	limit(1)
	vote := command{op: opVote, key: "new", owner: newOwner(), ttl: ttl, placeTTL: time.Second}
	if r := newClientWire(f.direct[0], patience).run(within(t, patience), []command{vote})[0]; r.err == nil || !strings.Contains(r.err.Error(), "OOM") {
		t.Errorf("a server out of memory: %s, %v", r.status, r.err)
	}
	for _, g := range grants {
		if err := a.release(g); err != nil {
			t.Errorf("release without memory: %v", err)
		}
	}
	eventually(t, "the other nodes", func() bool { return f.votes(t, "k") == 0 && f.votes(t, "other") == 0 })
	limit(0)
	a.drop(a.take("k", ttl))
}
