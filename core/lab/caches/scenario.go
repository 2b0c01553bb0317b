package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/figure"
	"github.com/lockaround/lockaround/core/lab/internal/team"
)

// Scenario is what callers do with a cache, and what is measured of it.
type Scenario struct {
	Name     string
	Title    string
	Chart    string // the title of its chart, of the same name; "" if there is none
	Bare     bool   // what is no cache takes part
	Together bool   // all peers at the same time, since it is mostly waiting
	Split    bool   // peers with copies in the process are drawn apart from those without
	Play     func(context.Context, *trial) (Outcome, error)
	Metrics  []Metric
}

// Metric is a figure of a scenario.
type Metric struct {
	Name  string
	Title string
	Unit  figure.Unit
	More  bool // the larger the better; otherwise the smaller
	Chart bool // it is drawn
}

var scenarios = []Scenario{
	{
		Name: "stampede", Title: "1,000 callers in 4 processes, the value has ended, a load takes 50 ms", Play: stampede,
		Chart: "A value ends and 1,000 callers in 4 processes ask for it: less is better", Metrics: stampedeMetrics,
	},
	{
		Name: "hits", Title: "64 callers in 1 process, 1,000 values of 100 bytes that are there", Play: hits, Bare: true, Split: true,
		Chart: "Gets per second of values that are there: more is better", Metrics: hitsMetrics,
	},
	{Name: "killed", Title: "the process that loads is killed; locks of 2 s, a load takes 50 ms", Together: true, Play: killed, Metrics: killedMetrics},
	{Name: "race", Title: "the value is invalidated while an old one is being loaded, 50 times", Together: true, Play: race, Metrics: raceMetrics},
}

// takesPart reports whether the peer has a part in the scenario.
func (p Peer) takesPart(s Scenario) bool { return !p.Bare || s.Bare }

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

var full = Pace{
	Processes: 4, Callers: 250, Waves: 25, Expiry: time.Second, Takes: 50 * time.Millisecond,
	Keys: 1000, Warm: 300 * time.Millisecond, Watch: time.Second, LockTTL: 2 * time.Second, Before: 100 * time.Millisecond,
	Tries: 50, Limit: time.Minute,
}

// trial is what a scenario is played with.
type trial struct {
	peer   Peer
	pace   Pace
	addr   string
	prefix string
	source *source
}

// Outcome is what a trial came to.
type Outcome struct {
	Measures map[string]float64
	Gets     *Gets
}

// recruit starts workers with the peer's cache.
func (t *trial) recruit(ctx context.Context, n int, s Settings) (team.Team[Command, Answer], error) {
	s.Addr = t.addr
	return team.Recruit[Command, Answer](ctx, n, role, Job{Peer: t.peer.Name, Settings: s})
}

// keys are n keys that nobody else has.
func (t *trial) keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(t.prefix, "-", i)
	}
	return all
}

// sleep ends with ctx, whose cause is its error then.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
