package dashboards

import (
	"strings"

	"github.com/lockaround/lockaround/core/instruments"
)

// Row is a row of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is a graph over time.
type Panel struct {
	Title, Description string
	Unit               string // as Grafana calls it
	Queries            []Query
}

// Query is a line of a panel, or a line for each value of the labels.
type Query struct {
	Expr, Legend string
	Exemplars    bool // of a histogram: points that lead to traces
}

// Units, as Grafana calls them.
const (
	seconds   = "s"
	perSecond = "cps"
	count     = "short"
	fraction  = "percentunit"
)

func one(expr, legend string) []Query { return []Query{{Expr: expr, Legend: legend}} }

// by is the legend of a query that goes by that label.
func by(label string) string { return "{{" + label + "}}" }

// quantiles are the median and the 99th percentile of a histogram.
func quantiles(q query, label string, i instruments.Instrument, match ...string) []Query {
	return []Query{
		{Expr: q.quantile(0.99, label, i, match...), Legend: by(label) + " p99", Exemplars: true},
		{Expr: q.quantile(0.5, label, i, match...), Legend: by(label) + " p50"},
	}
}

// Rows are the dashboard.
func Rows() []Row {
	q := query{match: `job=~"$job",` + policy + `=~"$policy"`, common: `job=~"$job"`, window: "$__rate_interval"}
	since := func(i instruments.Instrument) string { return "time() - " + q.max(policy, i) }
	node := strings.Join([]string{address, port, condition}, ", ")
	return []Row{
		{"Waits", []Panel{
			{
				"Time until a lock is granted", "Of calls that got the lock. A diamond is one call: it leads to its trace.",
				seconds, quantiles(q, policy, instruments.WaitDuration, is(outcome, "acquired")),
			},
			{
				"Calls by outcome", "How calls ended that asked for a lock.", perSecond,
				one(q.rate(outcome, instruments.WaitDuration), by(outcome)),
			},
			{
				"Callers that wait", "Right now, in all processes.", count,
				one(q.sum(policy, instruments.Waiting), by(policy)),
			},
			{
				"Share that did not get the lock", "Busy and timed out, of all calls. For jobs, busy is the rule: another replica has the tick.", fraction,
				one(q.share(policy, instruments.WaitDuration, is(outcome, "busy", "timeout", "deadline_exceeded")), by(policy)),
			},
		}},
		{"Holds", []Panel{
			{
				"Time that a lock is held", "Whoever waits for a key waits at least for this. A diamond is one call.", seconds,
				quantiles(q, policy, instruments.HoldDuration),
			},
			{
				"Locks that are held", "Right now, in all processes.", count,
				one(q.sum(policy, instruments.Held), by(policy)),
			},
			{
				"Grants and hand-offs", "Of all locks that callers got, those that came from a caller of the same process, which spares the store.", perSecond,
				[]Query{
					{Expr: q.rate(scraped, instruments.WaitDuration, is(outcome, "acquired")), Legend: by(scraped) + " all"},
					{Expr: q.rate(scraped, instruments.HandOff), Legend: by(scraped) + " handed off"},
				},
			},
		}},
		{"Losses", []Panel{
			{
				"Locks lost while held", "Each is a call whose context ended before it was done, and beside which another one may have run.", count,
				one(q.increase(policy, instruments.Lost), by(policy)),
			},
			{
				"Holds that ended otherwise than by a release", "Lost, longer than MaxHold, or with a release that the store did not confirm.", perSecond,
				one(q.rate(policy+", "+outcome, instruments.HoldDuration, isNot(outcome, "released")), by(policy)+" "+by(outcome)),
			},
		}},
		{"Store", []Panel{
			{
				"Share that the store failed", "Calls that ended in ErrUnavailable. They did not run.", fraction,
				one(q.share(store, instruments.WaitDuration, is(outcome, "unavailable")), by(store)),
			},
			{
				"Median time until a lock is granted", "While most keys are free this is the store's own time.", seconds,
				one(q.quantile(0.5, store, instruments.WaitDuration, is(outcome, "acquired")), by(store)),
			},
			{
				"Releases that were not confirmed", "They go on in the background, and end with the TTL at the latest.", perSecond,
				one(q.rate(store, instruments.HoldDuration, is(outcome, "unavailable")), by(store)),
			},
			{
				"Nodes of a quorum by condition", "As the process that sees the worst has it. Of five, three must be up. Empty without redlock.", count,
				one("sum by ("+condition+") ("+q.max(node, instruments.NodeCondition)+")", by(condition)),
			},
		}},
		{"Queues", []Panel{
			{
				"Items that have not ended", "Of the whole queue, in the store.", count,
				one(q.max(policy, instruments.QueueLength), by(policy)),
			},
			{
				"Age of the oldest first item", "How far the queue is behind.", seconds,
				one(q.max(policy, instruments.QueueOldest), by(policy)),
			},
			{
				"Keys that are parked", "Stuck behind a dead item until an operator resumes them.", count,
				one(q.max(policy, instruments.QueueParked), by(policy)),
			},
			{
				"Runs", "Begun, and ended by how.", perSecond,
				[]Query{
					{Expr: q.rate(policy, instruments.QueueAttempts), Legend: by(policy) + " begun"},
					{Expr: q.rate(policy+", "+outcome, instruments.QueueRuns), Legend: by(policy) + " " + by(outcome)},
				},
			},
			{
				"Time of a run", "", seconds,
				quantiles(q, policy, instruments.QueueRunDuration),
			},
			{
				"Items that have died", "Their attempts are used up, or the function gave them up.", count,
				one(q.increase(policy, instruments.QueueDead), by(policy)),
			},
		}},
		{"Caches", []Panel{
			{
				"Calls by outcome", "", perSecond,
				one(q.rate(policy+", "+outcome, instruments.CacheGets), by(policy)+" "+by(outcome)),
			},
			{
				"Share served without waiting for a load", "Fresh and stale.", fraction,
				one(q.share(policy, instruments.CacheGets, is(outcome, "fresh", "stale")), by(policy)),
			},
			{
				"Time of a load", "", seconds,
				quantiles(q, policy, instruments.CacheLoadDuration),
			},
		}},
		{"Idempotent calls", []Panel{
			{
				"Calls by outcome", "Unknown: a run has died, and somebody has to find out what it came to.", perSecond,
				one(q.rate(policy+", "+outcome, instruments.IdempotentCalls), by(policy)+" "+by(outcome)),
			},
			{
				"Share replayed", "", fraction,
				one(q.share(policy, instruments.IdempotentCalls, is(outcome, "replayed")), by(policy)),
			},
		}},
		{"Jobs", []Panel{
			{
				"Calls by outcome", "Skipped is the rule for all replicas but one.", perSecond,
				one(q.rate(policy+", "+outcome, instruments.JobRuns), by(policy)+" "+by(outcome)),
			},
			{
				"Time since the last success", "Of any replica. A replica that starts knows of none.", seconds,
				one(since(instruments.JobLastSuccess), by(policy)),
			},
			{
				"Time of a run", "", seconds,
				quantiles(q, policy, instruments.JobDuration),
			},
		}},
		{"Leaders", []Panel{
			{
				"Processes that lead", "1 is right. 0 is nobody; 2 for longer than a scrape is a fault.", count,
				one(q.sum(policy, instruments.LeaderLeading), by(policy)),
			},
			{
				"Terms that have ended", "", count,
				one(q.increase(policy+", "+outcome, instruments.LeaderTerms), by(policy)+" "+by(outcome)),
			},
		}},
	}
}
