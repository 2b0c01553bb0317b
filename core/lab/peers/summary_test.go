package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/golden"
)

func TestRatioIsToTheBestOtherPeerOfTheRound(t *testing.T) {
	rate, wait := Metric{Name: "x"}, Metric{Name: "x", Less: true}
	trials := []Trial{
		trialOf(subject, 1, 30), trialOf("redsync", 1, 10), trialOf("redislock", 1, 20),
		trialOf(subject, 2, 40), trialOf("redsync", 2, 80), failed("redislock", 2, 160),
		trialOf(subject, 3, 50), failed("redsync", 3, 10),
	}
	for _, c := range []struct {
		metric Metric
		value  float64
		round  int
		want   float64
	}{
		{rate, 30, 1, 1.5},
		{rate, 10, 1, 0.5},
		{wait, 30, 1, 10.0 / 30},
		{wait, 20, 1, 0.5},
		{rate, 40, 2, 0.5}, // a failed trial is no measure
		{rate, 50, 3, 0},   // nobody to compare with
		{wait, 0, 1, 0},
	} {
		if got := ratio(c.metric, c.value, c.round, trials, isOther); got != c.want {
			t.Errorf("the ratio of %v in round %d, less is better %v, is %v; want %v", c.value, c.round, c.metric.Less, got, c.want)
		}
	}
	if got := ratio(rate, 30, 1, append(trials, trialOf("rueidislock", 1, 60)), isOnGoRedis); got != 1.5 {
		t.Errorf("the ratio to those on go-redis is %v; want 1.5", got)
	}
	mine := summary(rate, subject, trials)
	if want := (Cell{Median: 40, Min: 30, Max: 50, Counted: 3, Ratio: 1}); mine != want {
		t.Errorf("the subject's cell is %+v; want %+v", mine, want)
	}
	if theirs := summary(rate, "redislock", trials); theirs.Counted != 1 || theirs.Failed != 1 {
		t.Errorf("a peer with a failure has %d trials and %d failures; want 1 and 1", theirs.Counted, theirs.Failed)
	}
	uncounted := Metric{Name: "requests"}
	for peer, want := range map[string]string{subject: "not counted", "redislock": "failed"} {
		row := Row{Metric: uncounted, Cells: map[string]Cell{peer: summary(uncounted, peer, trials)}}
		if got := row.text(peer); got != want {
			t.Errorf("a figure that nobody counts is %q for %s, want %q", got, peer, want)
		}
	}
}

func TestNotesSayEachThingOnce(t *testing.T) {
	gaveUp := func(round int, n int64) Trial {
		trial := trialOf("redislock", round, 1)
		trial.Outcomes = []*Outcome{{GaveUp: n, Refusal: "taken"}}
		return trial
	}
	got := notes([]Trial{failed("redsync", 1, 1), gaveUp(1, 3), failed("redsync", 2, 1), gaveUp(2, 7)})
	if len(got) != 2 || !slices.Equal(got[0].Rounds, []int{1, 2}) || !strings.HasPrefix(got[1].Text, "up to 7 calls") {
		t.Errorf("the notes are %+v", got)
	}
}

func trialOf(peer string, round int, v float64) Trial {
	return Trial{Scenario: "s", Peer: peer, Round: round, Measures: map[string]float64{"x": v}}
}

func failed(peer string, round int, v float64) Trial {
	t := trialOf(peer, round, v)
	t.Error = "it broke"
	return t
}

// example has what a table and a chart must show: ranges, failures in some rounds and in
// all, a peer that does not take part, shares, and words that are markup.
func example() Results {
	r := Results{
		Began: time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC), Machine: "2 cores", Rounds: 2, Seed: 7, Pace: full,
		Versions: map[string]string{"redsync": "v4.0.0", "redis server": "Redis 7.0.15"},
	}
	add := func(scenario, peer string, round int, failure string, measures map[string]float64) {
		r.Trials = append(r.Trials, Trial{Scenario: scenario, Peer: peer, Round: round, Error: failure, Measures: measures})
	}
	for round, v := range map[int]float64{1: 100_000, 2: 120_000} {
		add("free/64", subject, round, "", map[string]float64{"rate": v})
		add("free/64", "redsync", round, "", map[string]float64{"rate": v / 2})
		add("free/64", "rueidislock", round, "", map[string]float64{"rate": v / 1.5})
		add("hand-over", subject, round, "", map[string]float64{"median": 1.05 + v/1e8, "p99": 1.2, "trip": 1.01})
		add("hand-over", "etcd", round, "start etcd: a < b", nil)
		add("one-key/4x16", subject, round, "", map[string]float64{"rate": v, "least-share": 24})
		r.Trials[len(r.Trials)-1].Shares = []float64{26, 25, 25, 24}
	}
	add("held/10000", subject, 1, "", map[string]float64{"heap": 650, "stacks": 0, "goroutines": 0, "commands": 150, "renewal": 0.015})
	add("held/10000", "rueidislock", 1, "", map[string]float64{"heap": 6500, "stacks": 2048, "goroutines": 1, "commands": 6666, "renewal": 1})
	add("free/64", "redislock", 1, "it hung", map[string]float64{"rate": 1})
	add("free/64", "redislock", 2, "", map[string]float64{"rate": 33_333})
	slices.SortStableFunc(r.Trials, func(a, b Trial) int { return a.Round - b.Round })
	return r
}

func TestTable(t *testing.T) { golden.Check(t, "table.md", markdown(scenarios, example(), true)) }

func TestCharts(t *testing.T) {
	files, err := render(example())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"free.svg", "hand-over.svg"} {
		golden.Check(t, name, string(files[name]))
		for d := xml.NewDecoder(strings.NewReader(string(files[name]))); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is no XML: %v", name, err)
			}
		}
	}
	if _, drawn := files["one-shot.svg"]; drawn {
		t.Error("there is a chart of a scenario that was not run")
	}
	var back Results
	if err := json.Unmarshal(files["peers.json"], &back); err != nil || len(back.Trials) != len(example().Trials) {
		t.Errorf("the JSON has %d trials, %v; want %d", len(back.Trials), err, len(example().Trials))
	}
}
