package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestEachPeerServesAllCallers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer")
	}
	for store, program := range map[Store]string{Redis: "redis-server", Three: "redis-server", Etcd: "etcd"} {
		t.Run(string(store), func(t *testing.T) {
			testservers.Need(t, program)
			allServe(t, store)
		})
	}
}

func allServe(t *testing.T, store Store) {
	var on []Peer
	for _, p := range peers {
		if p.Store == store {
			on = append(on, p)
		}
	}
	// A peer may fail on a machine that is busy, as some do if an answer takes 20 ms; one
	// that never serves is not used as it should be. lockaround fails only if it says that
	// the server did not answer.
	const rounds = 10
	for range rounds {
		p := plan{Rounds: 1, Pace: patient, Scenarios: []Scenario{gathering}, Peers: on, Progress: t.Logf}
		p.Pace.Limit /= 3 // which a peer that hangs takes
		results, err := p.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(results.Trials) != len(on) {
			t.Fatalf("there were %d trials; want %d", len(results.Trials), len(on))
		}
		for _, trial := range results.Trials {
			switch {
			case trial.Error == "":
				on = slices.DeleteFunc(on, func(p Peer) bool { return p.Name == trial.Peer })
			case ours(trial.Peer) && !strings.Contains(trial.Error, core.ErrUnavailable.Error()):
				t.Fatalf("%s: %s", trial.Peer, trial.Error)
			}
		}
		if len(on) == 0 {
			return
		}
	}
	for _, p := range on {
		t.Errorf("%s did not serve all callers in any of %d rounds", p.Name, rounds)
	}
}

func TestInterruptedRunKeepsWhatItHas(t *testing.T) {
	testservers.Need(t, "redis-server")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := t.TempDir()
	page := filepath.Join(out, "page.md")
	if err := os.WriteFile(page, []byte("before\n"+markBegin+"old\n"+markEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := plan{Rounds: 5, Pace: patient, Peers: []Peer{peerNamed(t, subject)}, Progress: func(string, ...any) { interrupt() }}
	if err := compare(ctx, p, "gathering", "", out, page); !errors.Is(err, context.Canceled) {
		t.Errorf("compare: %v; want %v", err, context.Canceled)
	}
	table, err := os.ReadFile(filepath.Join(out, "peers.md"))
	if err != nil || !strings.Contains(string(table), gathering.Title) {
		t.Errorf("the table is %q, %v; want the one trial in it", table, err)
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != "before\n"+markBegin+string(table)+markEnd+"after\n" {
		t.Errorf("the page is %q, %v; want the table between its marks", got, err)
	}
}

func TestEtcdHandsOver(t *testing.T) {
	testservers.Need(t, "etcd")
	p := plan{Rounds: 1, Pace: patient, Scenarios: []Scenario{pair}, Peers: []Peer{peerNamed(t, "etcd")}, Progress: t.Logf}
	results, err := p.run(t.Context())
	if err != nil || len(results.Trials) != 1 || results.Trials[0].Error != "" {
		t.Errorf("it did %+v, %v", results.Trials, err)
	}
}

func TestMissingEtcdIsTheErrorOfItsTrials(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := plan{Rounds: 2, Pace: patient, Scenarios: []Scenario{gathering}, Peers: []Peer{peerNamed(t, "etcd")}, Progress: t.Logf}
	results, err := p.run(t.Context())
	if err != nil || len(results.Trials) != 2 {
		t.Fatalf("there are %d trials, %v; want 2", len(results.Trials), err)
	}
	for _, trial := range results.Trials {
		if !strings.Contains(trial.Error, "etcd-server") {
			t.Errorf("the error is %q; want the package that is missing in it", trial.Error)
		}
	}
}

func TestWithoutRedisThereIsNothingToCompare(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := compare(t.Context(), plan{Rounds: 1, Peers: peers, Pace: brief, Progress: t.Logf}, "free/1$", "", t.TempDir(), "")
	if !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("compare: %v; want that redis-server was not found", err)
	}
}

func TestCompareRefusesWhatCannotWork(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for want, try := range map[string]func() error{
		"-out DIR":  func() error { return compare(t.Context(), plan{Rounds: 1}, "", "", "", "") },
		"-rounds 0": func() error { return compare(t.Context(), plan{}, "", "", out, "") },
		"-only":     func() error { return compare(t.Context(), plan{Rounds: 1}, "(", "", out, "") },
		"<!-- /peers -->": func() error {
			return compare(t.Context(), plan{Rounds: 1}, "", "", out, "smoke_test.go")
		},
		"no such peer":     func() error { return compare(t.Context(), plan{Rounds: 1}, "", "nobody", out, "") },
		"no such scenario": func() error { return compare(t.Context(), plan{Rounds: 1}, "nothing", "", out, "") },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compare: %v; want %q in it", err, want)
		}
	}
}

func peerNamed(t *testing.T, name string) Peer {
	t.Helper()
	for _, p := range peers {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no peer %s", name)
	return Peer{}
}
