package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/team"
)

// What command caches compares.
type (
	plan     = contest.Plan[Pace, Open]
	Results  = contest.Results[Pace]
	Scenario = contest.Scenario[Pace, Open]
	Peer     = contest.Peer[Open]
	trial    = contest.Stage[Pace, Open]
	Trial    = contest.Trial
	Metric   = contest.Metric
	Outcome  = contest.Outcome
)

var scenarios = []Scenario{
	{
		Name: "stampede", Title: "1,000 callers in 4 processes, the value has ended, a load takes 50 ms", Play: stampede,
		Chart: "A value ends and 1,000 callers in 4 processes ask for it: less is better", Metrics: stampedeMetrics,
	},
	{
		Name: "hits", Title: "64 callers in 1 process, 1,000 values of 100 bytes that are there", Play: hits, Extra: true, Split: true,
		Chart: "Gets per second of values that are there: more is better", Metrics: hitsMetrics,
	},
	{Name: "killed", Title: "the process that loads is killed; locks of 2 s, a load takes 50 ms", Together: true, Play: killed, Metrics: killedMetrics},
	{Name: "race", Title: "the value is invalidated while an old one is being loaded, 50 times", Together: true, Play: race, Metrics: raceMetrics},
}

// Pace says how much of everything there is.
type Pace struct {
	Processes int           `json:"processes"` // of a stampede
	Callers   int           `json:"callers"`   // of each of them
	Waves     int           `json:"waves"`     // values that end
	Expiry    time.Duration `json:"expiry"`    // of these
	Takes     time.Duration `json:"takes"`     // a load
	Keys      int           `json:"keys"`      // of hits
	Warm      time.Duration `json:"warm"`      // hits before they count
	Watch     time.Duration `json:"watch"`     // that they count
	LockTTL   time.Duration `json:"lock_ttl"`  // of the process that is killed, in whole seconds
	Before    time.Duration `json:"before"`    // that it has loaded
	Tries     int           `json:"tries"`     // invalidations
	Limit     time.Duration `json:"limit"`     // of a trial
}

// Longest implements [contest.Pace].
func (p Pace) Longest() time.Duration { return p.Limit }

var full = Pace{
	Processes: 4, Callers: 250, Waves: 25, Expiry: time.Second, Takes: 50 * time.Millisecond,
	Keys: 1000, Warm: 300 * time.Millisecond, Watch: time.Second, LockTTL: 2 * time.Second, Before: 100 * time.Millisecond,
	Tries: 50, Limit: time.Minute,
}

// recruit starts workers with the peer's cache.
func recruit(ctx context.Context, t *trial, n int, s Settings) (team.Team[Command, Answer], error) {
	s.Addr = t.Addr
	return team.Recruit[Command, Answer](ctx, n, role, contest.Job[Settings]{Peer: t.Peer.Name, Settings: s})
}

// keysOf are n keys that nobody else has.
func keysOf(t *trial, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(t.Prefix, "-", i)
	}
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
