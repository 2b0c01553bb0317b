package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

func TestTrialReportsWhatIsWrongWithAPeer(t *testing.T) {
	for _, c := range []struct {
		peer     string
		scenario Scenario
		pace     Pace
		want     string // in the error
	}{
		{"open to all", gathering, patient, "two callers held one lock"},
		{"starves", endless, brief, "it hung: 0 critical sections"},
		{"starves", gathering, brief, "8 of 8 gave up: still waiting after 100ms"},
		{"hangs", endless, hasty, "it hung: 4 of 4 callers did not come back"},
		{"gives up", gathering, patient, "8 of 8 gave up: lock already taken"},
		{"cannot unlock", gathering, patient, "unlocks failed: lock not held"},
		{"cannot open", gathering, patient, "open: connection refused"},
		{"panics", gathering, patient, "panic: a bug"},
	} {
		t.Run(c.peer+" "+c.scenario.Name, func(t *testing.T) {
			set := &setting{
				servers: map[Store]*server.Server{nowhere: {Wipe: func(context.Context) error { return nil }}},
				folder:  t.TempDir(), pace: c.pace,
			}
			trial := set.try(t.Context(), c.scenario, fakeNamed(c.peer), 1)
			if !strings.Contains(trial.Error, c.want) {
				t.Errorf("the trial's error is %q; want %q in it", trial.Error, c.want)
			}
		})
	}
}

func fakeNamed(name string) Peer {
	for _, p := range fakes {
		if p.Name == name {
			return p
		}
	}
	panic("no fake " + name)
}

func TestWorkerEndsWithWhoeverStartedIt(t *testing.T) {
	p, err := child.Start(t, role, Job{
		Peer: "open to all", Scenario: endless.Name, Witness: filepath.Join(t.TempDir(), "witness"), Number: 1,
		Pace: Pace{Watch: time.Hour, Grace: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := p.Out.ReadString('\n'); err != nil || !strings.Contains(line, "ready") {
		t.Fatalf("the worker says %q, %v; want that it is ready", line, err)
	}
	if _, err := io.WriteString(p.In, "begin\n"); err != nil {
		t.Fatal(err)
	}
	if err := p.In.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil {
		t.Error("the worker ended as if it had done its job; want that it gave it up")
	}
}

func TestSharesAreOfAllProcessesAndTheLargestFirst(t *testing.T) {
	trial := Trial{Outcomes: []*Outcome{
		{Sections: 10, Watched: time.Second}, {Sections: 60, Watched: 2 * time.Second}, {Sections: 30, Watched: time.Second},
	}}
	trial.measure(scenarioNamed(t, "one-key/4x16"), Peer{})
	if got := shares(trial.Shares); got != "60:30:10 %" {
		t.Errorf("the shares are %s; want 60:30:10 %%", got)
	}
	if got := trial.Measures["least-share"]; got != 10 {
		t.Errorf("the smallest share is %v; want 10", got)
	}
	if got := trial.Measures["rate"]; got != 70 {
		t.Errorf("the rate is %v; want 10 + 30 + 30", got)
	}
}

func TestWaitersAreTimedFromTheFirstStartToTheLastEnd(t *testing.T) {
	at := func(ms int64) int64 { return ms * 1e6 }
	trial := Trial{Outcomes: []*Outcome{{Began: at(5), Ended: at(300)}, {Began: at(2), Ended: at(100)}}}
	trial.measure(scenarioNamed(t, "one-shot"), Peer{})
	if got := trial.Measures["elapsed"]; got != 298 {
		t.Errorf("it took %v ms; want 298", got)
	}
}

func scenarioNamed(t *testing.T, name string) Scenario {
	t.Helper()
	for _, s := range scenarios {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scenario %s", name)
	return Scenario{}
}

func TestEveryScenarioIsNamedOnceAndDrawn(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios {
		if seen[s.Name] {
			t.Errorf("two scenarios are named %s", s.Name)
		}
		seen[s.Name] = true
		drawn := s.Stores[len(s.Stores)-1] == nowhere // of the tests
		for _, c := range charts {
			drawn = drawn || c.name == s.Chart
		}
		if !drawn {
			t.Errorf("%s is in no chart", s.Name)
		}
	}
}
