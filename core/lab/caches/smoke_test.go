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
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

// Another peer may fail on a machine that is busy; one that always does is not used as it
// should be. lockaround fails only if it says that the server did not answer.
func TestEachPeerPlaysEachScenario(t *testing.T) {
	t.Parallel()
	testservers.Need(t, "redis-server")
	for _, s := range scenarios {
		s.Together = true
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			left := slices.DeleteFunc(slices.Clone(real), func(p Peer) bool { return !s.Has(p) })
			for range 3 {
				results, err := plan{Rounds: 1, Pace: brief, Scenarios: []Scenario{s}, Peers: left, Progress: t.Logf}.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(results.Trials) != len(left) {
					t.Fatalf("there were %d trials; want %d", len(results.Trials), len(left))
				}
				for _, trial := range results.Trials {
					p := peerNamed(t, trial.Peer)
					good := trial.Error == "" && trial.Failed == 0
					if good {
						left = slices.DeleteFunc(left, func(p Peer) bool { return p.Name == trial.Peer })
					} else if p.Mine() && !strings.Contains(trial.Error+trial.Failure, core.ErrUnavailable.Error()) {
						t.Fatalf("%s: %s, %s", trial.Peer, trial.Error, trial.Failure)
					}
					if good && p.Mine() {
						promised(t, s, trial)
					}
				}
				if len(left) == 0 {
					return
				}
			}
			for _, p := range left {
				t.Errorf("%s failed three times", p.Name)
			}
		})
	}
}

// promised fails the test if the trial is not as lockaround's documentation says.
func promised(t *testing.T, s Scenario, trial Trial) {
	t.Helper()
	for name, want := range map[string]float64{"most": 1, "stored": 0, "kept": 0} {
		if got, ok := trial.Measures[name]; ok && got != want {
			t.Errorf("%s, %s: %s is %v; want %v", s.Name, trial.Peer, name, got, want)
		}
	}
}

func TestLoadsAreCountedInAllProcesses(t *testing.T) {
	t.Parallel()
	trial := play(t, "stampede", "no cache")
	want := float64(brief.Processes * brief.Callers)
	if trial.Error != "" || trial.Measures["loads"] != want || trial.Measures["most"] != want {
		t.Errorf("without a cache there are %v loads, at most %v, %s; want %v", trial.Measures["loads"], trial.Measures["most"], trial.Error, want)
	}
}

func TestOutdatedValuesAreSeen(t *testing.T) {
	t.Parallel()
	trial := play(t, "race", "outdated")
	if trial.Error == "" {
		t.Error("a peer that never loads has played")
	}
	trial = play(t, "stampede", "outdated")
	if !strings.Contains(trial.Error, "has version 0") {
		t.Errorf("the error is %q; want that the value has an old version", trial.Error)
	}
	trial = play(t, "race", "go-redis/cache")
	// All tries of 6, unless the machine was busy elsewhere when one was to be in time.
	if trial.Measures["stored"] < 1 || trial.Measures["kept"] < 1 {
		t.Errorf("without a lock %v and %v of %v tries leave an old value, %s", trial.Measures["stored"], trial.Measures["kept"], brief.Tries, trial.Error)
	}
}

func TestFailedGetsAreReportedBesideTheMeasures(t *testing.T) {
	t.Parallel()
	trial := play(t, "hits", "fails at times")
	if trial.Error != "" || trial.Failed == 0 || trial.Failed == trial.Gets || trial.Failure != "not today" || trial.Measures["rate"] == 0 {
		t.Errorf("the trial is %+v; want its measures, and half of its gets failed", trial)
	}
}

func TestPeerThatFailsIsAnErrorOfItsTrial(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"panics": "panic: a bug", "cannot open": "connection refused", "hangs": "it hung"} {
		pace := brief
		if name == "hangs" {
			pace.Limit = 2 * time.Second
		}
		if trial := playAt(t, pace, "stampede", name); !strings.Contains(trial.Error, want) {
			t.Errorf("the error is %q; want %q in it", trial.Error, want)
		}
	}
}

func play(t *testing.T, scenario, peer string) Trial { return playAt(t, brief, scenario, peer) }

func playAt(t *testing.T, pace Pace, scenario, peer string) Trial {
	t.Helper()
	testservers.Need(t, "redis-server")
	pace.Expiry = time.Second
	p := plan{Rounds: 1, Pace: pace, Scenarios: []Scenario{scenarioNamed(t, scenario)}, Peers: []Peer{peerNamed(t, peer)}, Progress: t.Logf}
	results, err := p.Run(t.Context())
	if err != nil || len(results.Trials) != 1 {
		t.Fatalf("%d trials, %v", len(results.Trials), err)
	}
	return results.Trials[0]
}

func TestInterruptedRunKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	testservers.Need(t, "redis-server")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := t.TempDir()
	p := plan{Rounds: 5, Pace: brief, Scenarios: scenarios, Peers: real, Progress: func(string, ...any) { interrupt() }}
	if err := p.Compare(ctx, "hits", `^lockaround$`, out, render); !errors.Is(err, context.Canceled) {
		t.Errorf("compare: %v; want %v", err, context.Canceled)
	}
	table, err := os.ReadFile(filepath.Join(out, "caches.md"))
	if err != nil || !strings.Contains(string(table), "| p99 of Get |") {
		t.Errorf("the table is %q, %v; want the one trial in it", table, err)
	}
}

func TestWithoutRedisThereIsNothingToCompare(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := plan{Rounds: 1, Scenarios: scenarios, Peers: real, Pace: brief, Progress: t.Logf}
	if err := p.Compare(t.Context(), "", "", t.TempDir(), render); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("compare: %v; want that redis-server was not found", err)
	}
}
