package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/golden"
)

// example has what a table and a chart must show: ranges, a peer that is ahead, failures in some
// rounds and in all.
func example() Results {
	r := Results{
		Began: time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC), Machine: "2 cores", Server: "Redis 7.0.15", Rounds: 2, Seed: 7, Pace: full,
		Versions: map[string]string{asynqModule: "v0.26.0"},
	}
	add := func(scenario, peer string, round int, failure string, measures map[string]float64) {
		r.Trials = append(r.Trials, Trial{Scenario: scenario, Peer: peer, Round: round, Error: failure, Outcome: Outcome{Measures: measures}})
	}
	for round := 1; round <= 2; round++ {
		v := float64(round)
		add("bursts", contest.Subject, round, "", map[string]float64{"rate": 8000 * v, "enqueued": 20_000, "disorder": 0, "server": 60, "client": 80})
		add("bursts", "asynq", round, "", map[string]float64{"rate": 9000, "enqueued": 30_000 * v, "disorder": 40 * v, "server": 70, "client": 90})
		add("idle", "asynq, 20 ms", round, "it hung: a < b", nil)
	}
	add("idle", contest.Subject, 1, "", map[string]float64{"median": 1.5, "longest": 2, "commands": 0.5})
	add("idle", contest.Subject, 2, "it hung", nil)
	return r
}

func TestTable(t *testing.T) { golden.Check(t, "table.md", markdown(example())) }

func TestCharts(t *testing.T) {
	files, err := render(example())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bursts.svg", "idle.svg"} {
		golden.Check(t, name, string(files[name]))
	}
	if n := strings.Count(string(files["queues.json"]), "\n"); n < 8 {
		t.Errorf("the trials have %d lines; want one each", n)
	}
}
