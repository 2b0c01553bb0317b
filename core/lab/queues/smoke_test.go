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

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/testservers"
)

// real are the peers without those of the tests.
var real = slices.Clone(peers)

// TestMain makes the test binary a worker too, which knows the peers of the tests.
func TestMain(m *testing.M) {
	peers = append(peers, fakes...)
	child.Main(roles)
	goleak.VerifyTestMain(m)
}

// brief is as little of everything as there can be.
var brief = Pace{Workers: 4, Processes: 2, Keys: 10, Each: 5, Spread: 20, Lonely: 2, Between: 20 * time.Millisecond, TTL: time.Second, Limit: 2 * time.Minute}

var fakes = []Peer{
	{Name: "backwards", Open: func(_ Settings, run Run) (Queue, error) { return &backwards{run: run}, nil }},
	{Name: "loses one", Open: func(_ Settings, run Run) (Queue, error) { return &backwards{run: run, loses: true}, nil }},
	{Name: "panics", Open: func(Settings, Run) (Queue, error) { panic("a bug") }},
	{Name: "cannot open", Open: func(Settings, Run) (Queue, error) { return nil, errors.New("connection refused") }},
}

// backwards runs what it has in one process, the last item first.
type backwards struct {
	run   Run
	all   []Item
	loses bool
}

func (b *backwards) Enqueue(_ context.Context, i Item) error {
	b.all = append(b.all, i)
	return nil
}

func (b *backwards) Work() error {
	for n, i := range slices.Backward(b.all) {
		if n > 0 || !b.loses {
			_ = b.run(context.Background(), i) // which returns nil
		}
	}
	return nil
}

func (b *backwards) Close() {}

func TestEachPeerPlaysEachScenario(t *testing.T) {
	t.Parallel()
	testservers.Need(t, "redis-server")
	for _, s := range scenarios {
		if s.Name == "killed" { // asynq takes a minute or two
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			results, err := plan{Rounds: 1, Pace: brief, Scenarios: []Scenario{s}, Peers: real, Progress: t.Logf}.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, trial := range results.Trials {
				if trial.Error != "" {
					t.Errorf("%s: %s", trial.Peer, trial.Error)
				}
				for _, m := range s.Metrics {
					if v, ok := trial.Measures[m.Name]; !ok || v < 0 {
						t.Errorf("%s: %s is %v", trial.Peer, m.Name, v)
					}
				}
				if trial.Peer == contest.Subject && trial.Measures["disorder"] > 0 {
					t.Errorf("lockaround runs %v items out of order", trial.Measures["disorder"])
				}
			}
		})
	}
}

func TestKilledWorkerHasASuccessor(t *testing.T) {
	t.Parallel()
	trial := play(t, brief, "killed", contest.Subject)
	if trial.Error != "" || trial.Measures["until"] <= 0 {
		t.Errorf("the trial is %+v", trial)
	}
}

func TestDisorderIsCounted(t *testing.T) {
	t.Parallel()
	pace := brief
	pace.Processes, pace.Keys = 1, 1
	if trial := play(t, pace, "bursts", "backwards"); trial.Error != "" || trial.Measures["disorder"] != float64(pace.Each-1) {
		t.Errorf("a peer that runs %d items backwards has the trial %+v", pace.Each, trial)
	}
}

func TestPeerThatFailsIsAnErrorOfItsTrial(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"panics": "panic: a bug", "cannot open": "connection refused", "loses one": "it hung"} {
		pace := brief
		if name == "loses one" {
			pace.Keys, pace.Limit = 1, 2*time.Second
		}
		if trial := play(t, pace, "bursts", name); !strings.Contains(trial.Error, want) {
			t.Errorf("the error is %q; want %q in it", trial.Error, want)
		}
	}
}

func play(t *testing.T, pace Pace, scenario, peer string) Trial {
	t.Helper()
	testservers.Need(t, "redis-server")
	var p plan
	for _, s := range scenarios {
		if s.Name == scenario {
			p = plan{Rounds: 1, Pace: pace, Scenarios: []Scenario{s}, Progress: t.Logf}
		}
	}
	p.Peers = slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool { return p.Name != peer })
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
	if err := p.Compare(ctx, "single", `^lockaround$`, out, render); !errors.Is(err, context.Canceled) {
		t.Errorf("compare: %v; want %v", err, context.Canceled)
	}
	table, err := os.ReadFile(filepath.Join(out, "queues.md"))
	if err != nil || !strings.Contains(string(table), "| items run |") {
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
