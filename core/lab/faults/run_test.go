package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestPromisesHoldUnderFaults is the laboratory's short form: one fault of each kind on
// Redis, and some on other stores, whose TTLs are longer. Those that have much to do for
// an acquisition, or several servers, go one at a time, before the others, and most of them
// only if LOCKAROUND_COUNTS says stores=1: each takes half a minute. The command runs all.
func TestPromisesHoldUnderFaults(t *testing.T) {
	for _, c := range []struct {
		store  server.Kind
		of     string
		beside bool // others
		asked  bool // for, if it is run
	}{
		{server.Postgres, "partition|connection-kill|kept-restart", false, false},
		{server.MariaDB, "partition|connection-kill|kept-restart", false, true},
		{server.ZooKeeper, "session-expiry|leader-kill", false, true},
		{server.Sentinel, "lost-writes", false, false},
		{server.Cluster, "migration|lost-writes", false, true},
		{server.Quorum, "returned-needed|three-empty", false, true},
		{server.Redis, "", true, false},
		{server.Etcd, "partition|freeze|kept-restart", true, false},
	} {
		t.Run(string(c.store), func(t *testing.T) {
			if c.asked && counts.Of(t, "stores", 0, 0) == 0 {
				t.Skip("takes half a minute: set " + counts.Asks("stores", 1))
			}
			if c.beside {
				t.Parallel()
			}
			promisesHold(t, c.store, c.of)
		})
	}
}

// TestPromisesHoldUnderFaultsOnValkey has each fault once that Redis has too.
func TestPromisesHoldUnderFaultsOnValkey(t *testing.T) { promisesHold(t, server.Valkey, "") }

// promisesHold runs each fault once whose name matches.
func promisesHold(t *testing.T, kind server.Kind, of string) {
	t.Helper()
	where, err := storeNamed(string(kind))
	if err != nil {
		t.Fatal(err)
	}
	f, err := faultsOf(where, of)
	if err != nil {
		t.Fatal(err)
	}
	r, err := plan{Store: where, Seed: 5, Long: someLong, Faults: f, Rounds: 1, Progress: t.Logf}.run(t.Context())
	needed(t, err)
	hold(t, f, r)
}

// hold expects a run in which all went well, and much could have gone wrong.
func hold(t *testing.T, faults []fault, r *Run) {
	t.Helper()
	for _, v := range r.Violations {
		t.Error(v)
	}
	t.Logf("%+v", r.Figures)
	for _, f := range faults {
		if r.Figures.Faults[f.Name] != 1 {
			t.Errorf("%s came %d times, want once", f.Name, r.Figures.Faults[f.Name])
		}
	}
	switch f := r.Figures; {
	case f.HandOffs == 0:
		t.Error("no process handed a lock on to its own caller")
	case f.Ended == 0 && r.Store.Kind.Single(): // on the others there are few faults
		t.Error("no holder heard of a loss: nothing was hit in the middle")
	case f.Beside == 0 && r.Store.Kind.Single(): // on the others there are few calls, or no modes
		t.Error("nobody held a lock beside others")
	case f.Several == 0:
		t.Error("nobody held several keys at once")
	case f.Kept == 0 && r.Store.Kind != server.ZooKeeper: // which does not offer that
		t.Error("no key was to stay taken after its release")
	case f.Pieces == 0:
		t.Error("Porcupine was not asked")
	}
}

// TestMutantsAreCaught has those that show in nearly every run. Whether the others do is a
// matter of which section a fault hits, which a busy machine decides: the command runs all.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the laboratory once for each bug")
	}
	testservers.Need(t, "redis-server")
	t.Parallel()
	const runs = 10
	for _, name := range []string{"shared-token", "kept-token", "undead-renewal", "lost-wake-up", "open-to-all", "open-to-readers", "one-too-many", "forgotten-key", "short-keep"} {
		t.Run(name, func(t *testing.T) { // one at a time: a busy machine hides bugs
			m, found := mutant.Named(name)
			if !found {
				t.Fatal("there is no such mutant")
			}
			p, err := planOf(stores[0], m, "")
			if err != nil {
				t.Fatal(err)
			}
			p.Progress = t.Logf
			for p.Seed = 1; p.Seed <= runs; p.Seed++ {
				r, err := p.run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if caught(m, r) {
					return
				}
				t.Logf("%s: nothing of %v was found broken in %v: %v", m.Bug, m.Breaks, r.Took, r.Violations)
			}
			t.Errorf("%s: not caught in %d runs", m.Bug, runs)
		})
	}
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	testservers.Need(t, "redis-server")
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	f, err := faultsOf(stores[0], "pause")
	if err != nil {
		t.Fatal(err)
	}
	p := plan{Store: stores[0], Seed: 1, Faults: f, Time: time.Hour, Progress: func(string, ...any) { interrupt() }}
	if _, err := p.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v; want %v", err, context.Canceled)
	}
}
