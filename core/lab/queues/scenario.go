package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/lab/internal/team"
)

// What command queues compares.
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

// Pace says how much of everything there is.
type Pace struct {
	Workers   int           `json:"workers"`   // of a process
	Processes int           `json:"processes"` // where there are several
	Keys      int           `json:"keys"`
	Each      int           `json:"each"`   // items of a key
	Spread    int           `json:"spread"` // items of as many keys
	Lonely    int           `json:"lonely"` // items that come one by one
	Between   time.Duration `json:"between"`
	TTL       time.Duration `json:"ttl"`   // of the worker that is killed; 0 is each peer's default
	Limit     time.Duration `json:"limit"` // of a trial
}

// Longest implements [contest.Pace].
func (p Pace) Longest() time.Duration { return p.Limit }

var full = Pace{Workers: 16, Processes: 4, Keys: 1000, Each: 10, Spread: 5000, Lonely: 10, Between: 100 * time.Millisecond, Limit: 4 * time.Minute}

var scenarios = []Scenario{
	{
		Name: "bursts", Title: "a backlog of 10,000 items, 10 of each of 1,000 keys; 1 process with 16 workers",
		Chart: "Items per second of a backlog, 10 of each of 1,000 keys: more is better",
		Play: func(ctx context.Context, t *trial) (Outcome, error) {
			return backlog(ctx, t, 1, t.Pace.Keys, t.Pace.Each)
		},
		Metrics: []Metric{
			{Name: "rate", Title: "items run", Unit: measure.PerSecond, More: true, Chart: true},
			{Name: "enqueued", Title: "items enqueued by 16 callers", Unit: measure.PerSecond, More: true, Chart: true},
			{Name: "disorder", Title: "runs before or beside an earlier item of their key", Unit: measure.Each},
			{Name: "server", Title: "time of Redis for each item", Unit: measure.Microseconds},
			{Name: "client", Title: "processor time of the worker for each item", Unit: measure.Microseconds},
		},
	},
	{
		Name: "single", Title: "a backlog of 5,000 items of as many keys; 1 process with 16 workers",
		Chart: "Items per second of a backlog, each of a key of its own: more is better",
		Play: func(ctx context.Context, t *trial) (Outcome, error) {
			return backlog(ctx, t, 1, t.Pace.Spread, 1)
		},
		Metrics: []Metric{
			{Name: "rate", Title: "items run", Unit: measure.PerSecond, More: true, Chart: true},
			{Name: "enqueued", Title: "items enqueued by 16 callers", Unit: measure.PerSecond, More: true},
			{Name: "server", Title: "time of Redis for each item", Unit: measure.Microseconds},
			{Name: "client", Title: "processor time of the worker for each item", Unit: measure.Microseconds},
		},
	},
	{
		Name: "processes", Title: "a backlog of 10,000 items, 10 of each of 1,000 keys; 4 processes with 16 workers each",
		Play: func(ctx context.Context, t *trial) (Outcome, error) {
			return backlog(ctx, t, t.Pace.Processes, t.Pace.Keys, t.Pace.Each)
		},
		Metrics: []Metric{{Name: "rate", Title: "items run", Unit: measure.PerSecond, More: true}},
	},
	{
		Name: "idle", Title: "an item is enqueued by another process while nothing is queued", Extra: true, Play: idle,
		Chart: "Until an item starts that is enqueued while nothing is queued: less is better",
		Metrics: []Metric{
			{Name: "median", Title: "until it starts, median", Unit: measure.Milliseconds, Chart: true},
			{Name: "longest", Title: "the longest of 10", Unit: measure.Milliseconds},
			{Name: "commands", Title: "commands in a second meanwhile, before the first item", Unit: measure.Each},
		},
	},
	{
		Name: "killed", Title: "the process that runs an item is killed; another one works", Together: true, Once: true, Play: killed,
		Metrics: []Metric{{Name: "until", Title: "until the item starts again", Unit: measure.Milliseconds}},
	},
}

// recruit starts processes with the peer's queue.
func recruit(ctx context.Context, t *trial, n int) (team.Team[Command, Answer], error) {
	return team.Recruit[Command, Answer](ctx, n, role, contest.Job[Settings]{Peer: t.Peer.Name, Settings: Settings{Addr: t.Addr, Workers: t.Pace.Workers, TTL: t.Pace.TTL}})
}

// info is a figure of the server, the sum of those of its names.
func info(ctx context.Context, t *trial, section string, names ...string) (sum float64, err error) {
	text, err := t.Client.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, n := range names {
			if n == name {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return 0, fmt.Errorf("the server's %s: %w", name, err)
				}
				sum += v
			}
		}
	}
	return sum, nil
}

func processor(ctx context.Context, t *trial) (float64, error) {
	return info(ctx, t, "cpu", "used_cpu_user", "used_cpu_sys")
}

// until asks the processes until so many runs have begun, and returns what they said last.
func until(ctx context.Context, all team.Team[Command, Answer], runs int) ([]Answer, error) {
	for {
		answers, err := all.Ask(Command{Tell: true})
		if err != nil {
			return nil, err
		}
		n := 0
		for _, a := range answers {
			n += a.Runs
		}
		if n >= runs {
			return answers, nil
		}
		if err := contest.Sleep(ctx, 2*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%d of %d items have started: %w", n, runs, err)
		}
	}
}

// backlog fills the queue, and then starts the processes.
func backlog(ctx context.Context, t *trial, processes, keys, each int) (Outcome, error) {
	all, err := recruit(ctx, t, processes)
	if err != nil {
		return Outcome{}, err
	}
	defer all.Close()
	filled, err := all[0].Ask(Command{Fill: &Fill{Keys: keys, Each: each, Callers: 16}})
	if err != nil {
		return Outcome{}, err
	}
	items := float64(keys * each)
	before, err := all.Ask(Command{Tell: true})
	if err != nil {
		return Outcome{}, err
	}
	server, err := processor(ctx, t)
	if err != nil {
		return Outcome{}, err
	}
	began := time.Now()
	if _, err := all.Ask(Command{Start: &Start{}}); err != nil {
		return Outcome{}, err
	}
	after, err := until(ctx, all, keys*each)
	if err != nil {
		return Outcome{}, err
	}
	took, err := processor(ctx, t)
	if err != nil {
		return Outcome{}, err
	}
	m := map[string]float64{"enqueued": items / filled.Took.Seconds(), "server": (took - server) * 1e6 / items}
	var last int64
	for i, a := range after {
		last = max(last, a.Last)
		m["disorder"] += float64(a.Disorder)
		m["client"] += micros(a.Processor-before[i].Processor) / items
	}
	m["rate"] = items / time.Unix(0, last).Sub(began).Seconds()
	return Outcome{Measures: m}, nil
}

// idle has one process work, and another one enqueue.
func idle(ctx context.Context, t *trial) (Outcome, error) {
	all, err := recruit(ctx, t, 2)
	if err != nil {
		return Outcome{}, err
	}
	defer all.Close()
	works := all[:1]
	if _, err := works.Ask(Command{Start: &Start{}}); err != nil {
		return Outcome{}, err
	}
	var waits []float64
	m := map[string]float64{}
	for n := range t.Pace.Lonely + 1 {
		a, err := all[1].Ask(Command{Fill: &Fill{Keys: 1, Each: 1, Callers: 1}})
		if err != nil {
			return Outcome{}, err
		}
		runs, err := until(ctx, works, n+1)
		if err != nil {
			return Outcome{}, err
		}
		if n > 0 {
			waits = append(waits, milliseconds(time.Duration(runs[0].Last-a.Began)))
			m["longest"] = max(m["longest"], waits[n-1])
		} else if m["commands"], err = commands(ctx, t, 20*t.Pace.Between); err != nil { // the first one makes connections
			return Outcome{}, err
		}
		if err := contest.Sleep(ctx, t.Pace.Between); err != nil {
			return Outcome{}, err
		}
	}
	m["median"] = measure.Median(waits)
	return Outcome{Measures: m}, nil
}

// commands is how many the server executes in a second, those in scripts too.
func commands(ctx context.Context, t *trial, during time.Duration) (float64, error) {
	before, err := info(ctx, t, "stats", "total_commands_processed")
	if err != nil {
		return 0, err
	}
	if err := contest.Sleep(ctx, during); err != nil {
		return 0, err
	}
	after, err := info(ctx, t, "stats", "total_commands_processed")
	return max(after-before-1, 0) / during.Seconds(), err // one asked for the figure
}

// killed kills the process that runs an item, while another one works.
func killed(ctx context.Context, t *trial) (Outcome, error) {
	all, err := recruit(ctx, t, 2)
	if err != nil {
		return Outcome{}, err
	}
	defer all.Close()
	victim, other := all[:1], all[1:]
	if _, err := all[0].Ask(Command{Fill: &Fill{Keys: 1, Each: 1, Callers: 1}}); err != nil {
		return Outcome{}, err
	}
	if _, err := victim.Ask(Command{Start: &Start{Takes: time.Hour}}); err != nil {
		return Outcome{}, err
	}
	if _, err := until(ctx, victim, 1); err != nil {
		return Outcome{}, err
	}
	if _, err := other.Ask(Command{Start: &Start{}}); err != nil {
		return Outcome{}, err
	}
	if err := contest.Sleep(ctx, t.Pace.Between); err != nil {
		return Outcome{}, err
	}
	at := time.Now()
	all[0].Kill()
	a, err := until(ctx, other, 1)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Measures: map[string]float64{"until": milliseconds(time.Unix(0, a[0].Last).Sub(at))}}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
