package redlock

import (
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestRenewedVoteIsNotGivenBack has a yield come late: its owner has been granted the lease
// by the votes of others meanwhile, and this node's vote counts since the renewal. Were it
// given back, the node could make the majority of somebody else.
func TestRenewedVoteIsNotGivenBack(t *testing.T) {
	server := testservers.Redis(t)
	for name, node := range map[string]wire{
		"a node":    newClientWire(newClient(t, server.Addr()), storeTimeout),
		"the model": newModel("model"),
	} {
		t.Run(name, func(t *testing.T) {
			owner, other := newOwner(), newOwner()
			for _, step := range []struct {
				what string
				c    command
				want status
			}{
				{"a vote", command{op: opVote, owner: owner, ttl: time.Minute}, statusGranted},
				{"a renewal that names no token", command{op: opRenew, owner: owner, ttl: time.Minute}, statusLost},
				{"the renewal of a lease", command{op: opRenew, owner: owner, ttl: time.Minute, token: 5}, statusGranted},
				{"a late yield", command{op: opYield, owner: owner}, statusDenied},
				{"somebody else's vote", command{op: opVote, owner: other, ttl: time.Minute}, statusDenied},
				{"the next renewal", command{op: opRenew, owner: owner, ttl: time.Minute, token: 5}, statusGranted},
				{"the end", command{op: opEnd, owner: owner}, statusEnded},
				{"a late renewal", command{op: opRenew, owner: owner, ttl: time.Minute, token: 5}, statusLost},
				{"somebody else's vote then", command{op: opVote, owner: other, ttl: time.Minute}, statusGranted},
				{"a renewal whose token is not larger than what was accepted", command{op: opRenew, owner: other, ttl: time.Minute, token: 5}, statusLost},
				{"a token of an earlier attempt", command{op: opAccept, owner: other, ttl: time.Minute, token: 6}, statusGranted},
				{"the renewal of a lease with another one", command{op: opRenew, owner: other, ttl: time.Minute, token: 7}, statusGranted},
				{"a late yield of that attempt", command{op: opYield, owner: other, token: 6}, statusDenied},
				{"one more renewal", command{op: opRenew, owner: other, ttl: time.Minute, token: 7}, statusGranted},
			} {
				step.c.key = "k"
				r := node.run(t.Context(), []command{step.c})[0]
				if r.err != nil || r.status != step.want {
					t.Fatalf("of the nodes: %s: %v, %v; want %v", step.what, r.status, r.err, step.want)
				}
			}
		})
	}
}

// A node that has only the owner's place says that the lease was ousted, too.
func TestReleaseOfAnOustedLeaseWithAPlaceLeftIsRefused(t *testing.T) {
	f := startFleet(t, 3)
	p := openWithin(t, New(f.proxied), time.Second)
	s := p.Session.(*session)
	ctx := within(t, 10*time.Second)
	ask := func(node int, want status, c command) {
		t.Helper()
		c.key, c.ttl, c.placeTTL = "k", time.Minute, time.Minute
		if r := s.nodes[node].run(ctx, []command{c})[0]; r.err != nil || r.status != want {
			t.Fatalf("%s at node %d: %s, %v", c.op, node, r.status, r.err)
		}
	}
	owner, other := newOwner(), newOwner()
	token := time.Now().UnixMicro() + 1000
	ask(2, statusGranted, command{op: opVote, owner: other, channel: "lr1:x", token: token - 100})
	for node, want := range []status{statusGranted, statusGranted, statusDenied} {
		ask(node, want, command{op: opVote, owner: owner, channel: "lr1:o", ticket: token, wait: true})
	}
	for node := range 2 {
		ask(node, statusGranted, command{op: opAccept, owner: owner, channel: "lr1:o", token: token})
	}
	if err := s.Oust(ctx, "k", token); err != nil {
		t.Fatal(err)
	}
	defer f.proxies[1].Stall()()
	err := p.Release(ctx, []driver.Ending{{ID: driver.ID{Key: "k", Owner: owner}, Token: token, Deadline: time.Now().Add(time.Minute)}})[0]
	if !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the release returns %v", err)
	}
}
