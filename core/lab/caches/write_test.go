package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/golden"
)

func TestItemsHaveTheirSize(t *testing.T) {
	text, err := json.Marshal(newItem("hits-lockaround-1-999", 1))
	if err != nil || len(text) != itemSize {
		t.Errorf("an item has %d bytes, %v; want %d", len(text), err, itemSize)
	}
}

// example has what a table and a chart must show: ranges, failures in some rounds and in
// all, a peer that does not take part, and words that are markup.
func example() Results {
	r := Results{
		Began: time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC), Machine: "2 cores", Server: "Redis 7.0.15", Rounds: 2, Seed: 7, Pace: full,
		Versions: map[string]string{rockscacheModule: "v0.1.1"},
	}
	add := func(scenario, peer string, round int, failure string, measures map[string]float64) {
		r.Trials = append(r.Trials, Trial{Scenario: scenario, Peer: peer, Round: round, Error: failure, Outcome: Outcome{Gets: 1000, Measures: measures}})
	}
	for round := 1; round <= 2; round++ {
		v := float64(round)
		add("stampede", "lockaround", round, "", map[string]float64{"loads": 1, "most": 1, "p50": 60 + v, "p99": 80, "max": 90})
		add("stampede", "rueidisaside", round, "", map[string]float64{"loads": 1, "most": 1, "p50": 55 + v, "p99": 85 + v, "max": 95})
		add("stampede", "go-redis/cache", round, "", map[string]float64{"loads": 4, "most": 4, "p50": 50 + v, "p99": 70, "max": 80})
		add("hits", "lockaround", round, "", map[string]float64{"rate": 50_000 + v, "p99": 900, "allocs": 29})
		add("hits", "lockaround, tiered", round, "", map[string]float64{"rate": 500_000 * v, "p99": 90, "allocs": 10})
		add("hits", "(GET)", round, "", map[string]float64{"rate": 80_000, "p99": 700, "allocs": 14})
		add("killed", "rockscache", round, "it hung: a < b", nil)
	}
	add("hits", "rockscache", 1, "no Get returned a value", map[string]float64{"rate": 1e9})
	add("hits", "rockscache", 2, "", map[string]float64{"rate": 20_000, "p99": 2000, "allocs": 141})
	r.Trials[len(r.Trials)-1].Failed, r.Trials[len(r.Trials)-1].Failure = 3, "timed out"
	return r
}

func TestTable(t *testing.T) { golden.Check(t, "table.md", markdown(example())) }

func TestCharts(t *testing.T) {
	files, err := render(example())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stampede.svg", "hits.svg"} {
		golden.Check(t, name, string(files[name]))
		for d := xml.NewDecoder(strings.NewReader(string(files[name]))); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is no XML: %v", name, err)
			}
		}
	}
	if len(files) != 4 {
		t.Errorf("there are %d files; want a table, JSON and two charts", len(files))
	}
	var back Results
	if err := json.Unmarshal(files["caches.json"], &back); err != nil || len(back.Trials) != len(example().Trials) {
		t.Errorf("the JSON has %d trials, %v; want %d", len(back.Trials), err, len(example().Trials))
	}
}

func TestBestIsAmongThoseWithCopiesOrAmongThoseWithout(t *testing.T) {
	for _, row := range contest.Rows(scenarios, example().Trials) {
		if row.Scenario.Name != "hits" || row.Metric.Name != "rate" {
			continue
		}
		for name, want := range map[string]bool{"lockaround": true, "lockaround, tiered": true, "(GET)": false, "rockscache": false} {
			if got := best(row, peerNamed(t, name)); got != want {
				t.Errorf("%s is the best: %v; want %v", name, got, want)
			}
		}
		if c := row.Cells["rockscache"]; !reflect.DeepEqual(c, contest.Cell{Values: map[int]float64{2: 20_000}, Failed: 1}) {
			t.Errorf("a peer with a failure has %+v; want only the trial without", c)
		}
	}
}
