package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// Scenario is what callers do with a lock, and what is measured of it.
type Scenario struct {
	Name      string
	Title     string
	Part      string // title of the table that it is in; empty for the first
	Sweep     string // title of the sweep that it is of; empty if it is of none
	Chart     string // the one that shows it; scenarios of a chart share its scale
	Detail    bool   // a page has its chart only
	Stores    []Store
	Processes int
	Callers   int           // of each process
	Own       bool          // each caller has a key of its own; otherwise all share one
	Delay     time.Duration // of the link to the store, each way
	Busy      bool          // the link keeps its time to the microsecond, at the cost of a processor
	Sent      bool          // lockaround's releases return once they are on their way; the others have no such choice
	Procs     int           // GOMAXPROCS of each process; 0 is as it comes
	Body      time.Duration // how long a critical section takes
	Jitter    time.Duration // at random less than that longer
	Finite    bool          // it ends by itself when all callers were served, or is given up at Pace.Limit
	Longer    int           // how many times longer it is watched than others; 0 is once
	TTL       time.Duration // of leases; 0 is each peer's default
	Ideal     bool          // it is timed what the bodies take one after the other, without a lock
	Count     bool          // commands that the processes send to the store are counted
	Metered   bool          // what the store does meanwhile is read
	Out       []string      // peers that take no part
	Why       string        // what they do instead, after "they"
	Play      func(context.Context, *stage)
	Metrics   []Metric
}

// Metric is a figure of a scenario.
type Metric struct {
	Name  string
	Title string
	Unit  measure.Unit
	Less  bool // the smaller the better
	Plain bool // it is no figure of a peer's and compared with nobody's
	Also  bool // it is also compared with the peers on go-redis alone

	Detail bool // a page does not have it
}

var (
	onRedis = []Store{Redis}
	onAny   = []Store{Redis, Etcd}
	rate    = []Metric{{Name: "rate", Title: "critical sections", Unit: measure.PerSecond}}
	trips   = []Metric{
		{Name: "median", Title: "median", Unit: measure.Trips, Less: true},
		{Name: "p99", Title: "p99", Unit: measure.Trips, Less: true},
		{Name: "trip", Title: "(a byte there and back meanwhile)", Unit: measure.Trips, Plain: true},
	}
	inServer   = Metric{Name: "server", Title: "processor time of a section in the store", Unit: measure.Microseconds, Less: true}
	redisPeers = []string{"redsync", "redislock", "rueidislock"}
	fairness   = []Metric{
		{Name: "spread", Title: "worst ÷ median wait", Unit: measure.Times, Less: true},
		{Name: "worst", Title: "worst wait", Unit: measure.Milliseconds, Less: true},
		{Name: "stall", Title: "(worst stall of the machine meanwhile)", Unit: measure.Milliseconds, Plain: true},
	}
)

var scenarios = slices.Concat(
	metered(sweep(Scenario{Name: "free", Title: "each its own key"}), inServer),
	sweep(Scenario{Name: "link-0.5ms", Title: "each its own key, a round trip of 0.5 ms", Delay: 250 * time.Microsecond, Detail: true}),
	sweep(Scenario{Name: "link-1ms", Title: "each its own key, a round trip of 1 ms", Delay: 500 * time.Microsecond}),
	sweep(Scenario{Name: "link-5ms", Title: "each its own key, a round trip of 5 ms", Delay: 2500 * time.Microsecond, Detail: true}),
	few(sweep(Scenario{Name: "sent-0.5ms", Title: "each its own key, a round trip of 0.5 ms, Release: Sent", Delay: 250 * time.Microsecond, Sent: true, Detail: true})),
	few(sweep(Scenario{Name: "sent-1ms", Title: "each its own key, a round trip of 1 ms, Release: Sent", Delay: 500 * time.Microsecond, Sent: true})),
	few(sweep(Scenario{Name: "sent-5ms", Title: "each its own key, a round trip of 5 ms, Release: Sent", Delay: 2500 * time.Microsecond, Sent: true, Detail: true})),
	sweep(Scenario{Name: "one-core", Title: "each its own key, GOMAXPROCS=1", Procs: 1, Detail: true}),
	others,
	beside("etcd", inEtcd, Etcd),
	beside("quorum", inThree, Three),
	beside("zookeeper", inZooKeeper, ZooKeeper),
	beside("postgres", inPostgres, Postgres),
	beside("mariadb", inMariaDB, MariaDB),
)

// counts are the numbers of callers of a sweep.
var counts = []int{1, 2, 4, 8, 16, 32, 64, 128, 256}

// sweep is callers of one process with free keys, by their number.
func sweep(base Scenario) (all []Scenario) {
	for _, n := range counts {
		s := base
		s.Name, s.Chart, s.Sweep = fmt.Sprintf("%s/%d", base.Name, n), base.Name, base.Title
		if s.Title = fmt.Sprintf("%d callers, %s", n, base.Title); n == 1 {
			s.Title = "1 caller, " + strings.Replace(base.Title, "each its own key", "a free key", 1)
		}
		s.Stores, s.Processes, s.Callers, s.Own, s.Play = onRedis, 1, n, true, acquiring
		s.Metrics = []Metric{
			{Name: "rate", Title: "critical sections", Unit: measure.PerSecond, Also: true},
			{Name: "take", Title: "an acquisition, median", Unit: measure.Microseconds, Less: true, Detail: true},
			{Name: "take-p99", Title: "an acquisition, p99", Unit: measure.Microseconds, Less: true, Detail: true},
			{Name: "processor", Title: "processor time of a section in the process", Unit: measure.Microseconds, Less: true, Detail: true},
		}
		all = append(all, s)
	}
	return all
}

// metered are the scenarios with figures of what the store does meanwhile.
func metered(all []Scenario, work ...Metric) []Scenario {
	for i := range all {
		all[i].Metered, all[i].Metrics = true, append(all[i].Metrics, work...)
	}
	return all
}

// few are the scenarios of a sweep with the fewest callers, to whom a round trip counts most.
func few(all []Scenario) []Scenario { return all[:4] }

// others are the scenarios that are no sweep's.
var others = []Scenario{
	{
		Name: "one-key/64", Title: "64 callers on 1 key, 1 process", Chart: "one-key",
		Stores: onRedis, Processes: 1, Callers: 64, Play: saturate, Metrics: rate,
	},
	{
		Name: "one-key/4x16", Title: "4 processes × 16 callers on 1 key", Chart: "one-key",
		Stores: onRedis, Processes: 4, Callers: 16, Play: saturate,
		Metrics: append(rate[:1:1], Metric{Name: "least-share", Title: "smallest share of a process (25 % is even)", Unit: measure.Percent}),
	},
	{
		// A hold is long enough for the other three to be waiting at its end, and no two
		// are as long, so that those who ask again and again have neither luck nor none.
		Name: "hand-over", Title: "hand-over between 4 processes, a round trip of 10 ms from the store", Chart: "hand-over",
		Stores: onAny, Processes: 4, Callers: 1, Delay: 5 * time.Millisecond, Busy: true,
		Body: 25 * time.Millisecond, Jitter: 20 * time.Millisecond, Longer: 4, Play: relay, Metrics: trips,
	},
	{
		Name: "one-shot", Title: "200 waiters in 4 processes, once each, 2 ms body", Chart: "one-shot",
		Stores: onRedis, Processes: 4, Callers: 50, Body: 2 * time.Millisecond, Finite: true, Ideal: true, Play: once,
		Metrics: []Metric{
			{Name: "elapsed", Title: "until all were served", Unit: measure.Milliseconds, Less: true},
			{Name: "ideal", Title: "(no lock: one goroutine, one body after the other)", Unit: measure.Milliseconds, Plain: true},
			{Name: "excess", Title: "÷ 400 ms", Unit: measure.Times, Less: true},
		},
	},
	{
		// Not part of one-key/64: reading the clock for each wait would slow down the fast.
		Name: "fairness/empty", Title: "waits of 64 callers on 1 key, 1 process, nothing to do", Chart: "fairness",
		Stores: onRedis, Processes: 1, Callers: 64, Longer: 2, Play: timed, Metrics: fairness,
	},
	{
		Name: "fairness/200us", Title: "the same, 0.2 ms body", Chart: "fairness",
		Stores: onRedis, Processes: 1, Callers: 64, Body: 200 * time.Microsecond, Longer: 2, Play: timed, Metrics: fairness,
	},
	{
		Name: "held/10000", Title: "10,000 leases held and renewed, a TTL of 3 s", Chart: "held",
		Stores: onRedis, Processes: 1, Callers: 10_000, Own: true, TTL: 3 * time.Second, Finite: true, Count: true, Play: hold,
		Out: []string{"redsync", "redislock"}, Why: "renew no leases",
		Metrics: []Metric{
			{Name: "heap", Title: "heap for each", Unit: measure.Bytes, Less: true},
			{Name: "stacks", Title: "stacks for each", Unit: measure.Bytes, Less: true},
			{Name: "goroutines", Title: "goroutines for each", Unit: measure.Each, Less: true},
			{Name: "commands", Title: "commands to Redis", Unit: measure.PerSecond, Less: true},
			{Name: "renewal", Title: "commands for each lease and renewal", Unit: measure.Each, Less: true},
		},
	},
	{
		Name: "call/function", Title: "a function by WithLock, in memory", Chart: "call",
		Stores: onRedis, Processes: 1, Callers: 1, Play: calling(inMemory), Out: redisPeers, Why: "wrap no function",
		Metrics: []Metric{
			{Name: "with", Title: "a call", Unit: measure.Microseconds, Less: true},
			{Name: "allocs", Title: "allocations", Unit: measure.Each, Less: true},
		},
	},
	{
		Name: "call/linger", Title: "a function by WithLock, the lease in Redis lingers", Chart: "call",
		Stores: onRedis, Processes: 1, Callers: 1, Count: true, Play: again, Out: redisPeers, Why: "keep no lease from call to call",
		Metrics: []Metric{
			{Name: "with", Title: "a call", Unit: measure.Microseconds, Less: true},
			{Name: "commands", Title: "commands to Redis", Unit: measure.PerSecond, Less: true, Plain: true},
		},
	},
	{
		Name: "call/route", Title: "a gin route with a lock in memory", Chart: "call",
		Stores: onRedis, Processes: 1, Callers: 1, Play: calling(aRoute), Out: redisPeers, Why: "wrap no route",
		Metrics: []Metric{{Name: "added", Title: "a request, minus one without a lock", Unit: measure.Microseconds, Less: true}},
	},
}

// chartOf is the title of a chart.
type chartOf struct {
	name, title string
	lines       bool // over the number of callers
}

// charts are the titles of the charts, in their order.
var charts = slices.Concat([]chartOf{
	{"free", "Critical sections per second over callers, free keys: more is better", true},
	{"link-0.5ms", "The same, a round trip of 0.5 ms", true},
	{"link-1ms", "The same, a round trip of 1 ms", true},
	{"link-5ms", "The same, a round trip of 5 ms", true},
	{"sent-0.5ms", "The same, a round trip of 0.5 ms, lockaround with Release: Sent", true},
	{"sent-1ms", "The same, a round trip of 1 ms, lockaround with Release: Sent", true},
	{"sent-5ms", "The same, a round trip of 5 ms, lockaround with Release: Sent", true},
	{"one-core", "The same on loopback, GOMAXPROCS=1", true},
	{"one-key", "Critical sections per second, one key: more is better", false},
	{"hand-over", "Hand-over between processes, in round trips: less is better", false},
	{"one-shot", "200 waiters in 4 processes, 2 ms each: less is better", false},
	{"fairness", "Worst wait ÷ median wait, 64 callers on one key: less is better", false},
	{"call", "A call with a lock that nobody else wants, in memory", false},
	{"held", "10,000 leases held, bytes of heap for each: less is better", false},
},
	chartsBeside("etcd", inEtcd),
	chartsBeside("quorum", inThree),
	chartsBeside("zookeeper", inZooKeeper),
	chartsBeside("postgres", inPostgres),
	chartsBeside("mariadb", inMariaDB),
)

// The titles of parts.
const (
	inEtcd  = "etcd"
	inThree = "Three Redis servers, by majority"

	inZooKeeper = "ZooKeeper"
	inPostgres  = "PostgreSQL"
	inMariaDB   = "MariaDB"
)

// charted says which metrics of a scenario are bars; others are only in the table.
func charted(m Metric) bool {
	return !m.Plain && slices.Contains([]string{"rate", "median", "p99", "elapsed", "spread", "heap", "with", "added", "wait"}, m.Name)
}

// Pace is how long things take.
type Pace struct {
	Warm  time.Duration `json:"warm"`  // before anything counts
	Watch time.Duration `json:"watch"` // how long it counts then
	Limit time.Duration `json:"limit"` // for what ends by itself
	Grace time.Duration `json:"grace"` // for starting and ending
}

var (
	full  = Pace{Warm: 200 * time.Millisecond, Watch: time.Second, Limit: 15 * time.Second, Grace: 6 * time.Second}
	short = Pace{Warm: 50 * time.Millisecond, Watch: 150 * time.Millisecond, Limit: 8 * time.Second, Grace: 3 * time.Second}
)

// of returns the pace for a scenario.
func (p Pace) of(s Scenario) Pace {
	p.Watch *= time.Duration(max(s.Longer, 1))
	return p
}
