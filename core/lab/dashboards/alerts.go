package dashboards

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lockaround/lockaround/core/instruments"
)

// Alert is one that Prometheus evaluates, and what its reader does about it.
type Alert struct {
	Name     string
	Severity string // critical: calls fail or run twice; warning: they will
	Expr     string
	For      string // how long it must be so; empty for at once
	Summary  string // with Prometheus' templates
	Means    string
	Do       string
}

// Runbook is the page that an alert names.
const Runbook = "https://github.com/lockaround/lockaround/blob/main/core/dashboards/README.md"

// of is the end of a summary: which policy, in which of Prometheus' jobs.
const of = " {{ $labels.lock_name }} in {{ $labels.job }}"

// Alerts are all, the most urgent first.
func Alerts() []Alert {
	short, long := query{window: "5m"}, query{window: "15m"}
	each := strings.Join([]string{scraped, policy}, ", ")
	stores := strings.Join([]string{scraped, store}, ", ")
	nodes := strings.Join([]string{scraped, address, port, condition}, ", ")
	above := func(expr, limit string) string { return expr + " > " + limit }
	led := " unless on (" + each + ") " + short.series(instruments.LeaderLeading, "")
	return []Alert{
		{
			Name: "LockStoreErrors", Severity: "critical", For: "5m",
			Expr:    above(short.share(stores, instruments.WaitDuration, is(outcome, "unavailable")), "0.01"),
			Summary: "{{ $value | humanizePercentage }} of the calls for locks in {{ $labels.lock_driver }} fail in {{ $labels.job }}",
			Means:   "More than 1% of the calls end in ErrUnavailable: the store is down, refuses, or is slower than the engine's store time-out. These calls did not run.",
			Do:      "Read the log of a process: it names the cause once when an outage begins, and again when the store answers. Then see to the store and the way to it. Nothing has to be cleared in lockaround afterwards.",
		},
		{
			Name: "LockLost", Severity: "critical",
			Expr:    above(short.increase(each, instruments.Lost), "0"),
			Summary: "Leases of" + of + " were lost while they were held",
			Means:   "A lease ended before its holder released it. The call's context ended with ErrLost; what it wrote after that, another one may have written beside.",
			Do:      "Find the spans `lock hold` with the outcome lost. Common causes: the process stood still for longer than the TTL (garbage collection, CPU limits, a paused machine), the store lost data in a failover or was emptied, somebody used ForceRelease. Raise TTL if pauses are long. Guard what must not be written late with package fence.",
		},
		{
			Name: "LockTwoLeaders", Severity: "critical", For: "2m",
			Expr:    above(short.sum(each, instruments.LeaderLeading), "1"),
			Summary: "{{ $value }} processes lead" + of,
			Means:   "More than one process says that it leads, for longer than scrapes of different processes are apart. One of them has a function that goes on after its context has ended, or the replicas do not share a store and a namespace.",
			Do:      "Compare namespace, key and store of the replicas. Look for code under the leader that does not end with its context. Check with Engine.Inspect who holds the key, and end the other process.",
		},
		{
			Name: "LockNoLeader", Severity: "critical", For: "2m",
			Expr:    short.sum(each, instruments.LeaderLeading) + " == 0",
			Summary: "Nobody leads" + of,
			Means:   "Candidates run, and none has led for two minutes.",
			Do:      "Check with Engine.Inspect who holds the key: a process that is not scraped, or one that hangs and still renews? Otherwise the log of a candidate says why its acquisitions or its function fail.",
		},
		{
			Name: "LockWaitsLong", Severity: "warning", For: "10m",
			Expr:    above(short.quantile(0.99, each, instruments.WaitDuration, is(outcome, "acquired", "timeout", "deadline_exceeded")), "5"),
			Summary: "One call in a hundred waits {{ $value | humanizeDuration }} for" + of,
			Means:   "The 99th percentile of waits is above 5 s, and stays there. That leaders and workers of queues wait for days is right and does not count: it is one call, and is over within the 10 minutes.",
			Do:      "Open the panel \"Time until a lock is granted\", and from one of its diamonds the trace: the span `lock acquire` has the attribute lock.holder and a link to the holder. Then shorten what runs under the lock, or use a key that is finer. Set Wait to what callers can bear.",
		},
		{
			Name: "LockTimeouts", Severity: "warning", For: "10m",
			Expr:    above(short.share(each, instruments.WaitDuration, is(outcome, "timeout", "deadline_exceeded")), "0.05"),
			Summary: "{{ $value | humanizePercentage }} of the calls time out waiting for" + of,
			Means:   "More than 5% of the calls give up after their Wait or at their deadline. For a job with CatchUp that is right: exclude its policy here.",
			Do:      "As for LockWaitsLong. If waits are short and time-outs many, Wait is less than the function takes.",
		},
		{
			Name: "LockStuck", Severity: "warning", For: "15m",
			Expr: above(short.sum(each, instruments.Waiting), "0") + " unless " +
				above(long.rate(each, instruments.WaitDuration, is(outcome, "acquired")), "0") + led,
			Summary: "Callers wait for" + of + ", and nobody has got it for 15 minutes",
			Means:   "There are waiters, and no call of this policy was granted a lock: a holder hangs, and its lease is renewed for as long. Candidates of a leader are left out.",
			Do:      "Find the holder's process and trace with Engine.Inspect, or at the waiting span's lock.holder. End that process: the key is free a TTL later. Engine.ForceRelease takes the key from a holder that cannot be ended; it may still be writing. Set MaxHold, so that it cannot hang for ever.",
		},
		{
			Name: "LockNodeDown", Severity: "warning", For: "5m",
			Expr:    above(short.max(nodes, instruments.NodeCondition, is(condition, "down", "restarted_empty")), "0"),
			Summary: "The node {{ $labels.server_address }} is {{ $labels.lock_node_condition }} as seen by {{ $labels.job }}",
			Means:   "A node of a quorum (package redlock) does not answer, or has come back without its data. Locks go on while a majority is up. A node that is restarted_empty votes again after WithRestartDelay.",
			Do:      "Bring the node back. Do not restart a second one before the first is up for as long as the largest TTL.",
		},
		{
			Name: "LockQueueParked", Severity: "warning", For: "1m",
			Expr:    above(short.max(each, instruments.QueueParked), "0"),
			Summary: "{{ $value }} keys of the queue" + of + " are parked",
			Means:   "An item has died, and OnDead is Hold: the items of its key wait behind it until somebody decides.",
			Do:      "serial.Func.Parked lists the keys and their dead items, and the log has the cause. Mend it, then serial.Func.Resume: run the item again, go on with those behind it, or drop it.",
		},
		{
			Name: "LockQueueGrows", Severity: "warning", For: "30m",
			Expr: above(short.max(each, instruments.QueueLength), "100") + " and " +
				above(fmt.Sprintf("max by (%s) (deriv(%s[30m]))", each, Family(instruments.QueueLength)), "0"),
			Summary: "The queue" + of + " has {{ $value }} items, and grows",
			Means:   "More items come than end, for half an hour.",
			Do:      "Look at the row Queues: do runs take longer, do more of them fail, or do more items come? Keys are independent: more Workers or more processes help if many keys wait, and nothing but a faster function if one does.",
		},
		{
			Name: "LockQueueOld", Severity: "warning", For: "5m",
			Expr:    above(short.max(each, instruments.QueueOldest), "600"),
			Summary: "The oldest item of the queue" + of + " has waited for {{ $value | humanizeDuration }}",
			Means:   "The first item of a key has not ended within ten minutes: no process runs Work, its runs fail and are repeated, or one run hangs.",
			Do:      "Is a process up that calls Work? The log has a line for each run that failed. serial.Func.Status tells of an item by its ID.",
		},
		{
			Name: "LockQueueItemsDie", Severity: "warning",
			Expr:    above(short.increase(each, instruments.QueueDead), "0"),
			Summary: "Items of the queue" + of + " have died",
			Means:   "The attempts of an item are used up, or its function gave it up. What it stands for was not done.",
			Do:      "The log has the cause. What becomes of the items behind it OnDead says.",
		},
		{
			Name: "LockJobOverdue", Severity: "warning",
			Expr:    above("time() - "+short.max(each, instruments.JobLastSuccess), "86400"),
			Summary: "The job" + of + " last succeeded {{ $value | humanizeDuration }} ago",
			Means:   "No replica has run the job without an error for a day. Set the limit to the job's period and the time that a run takes, with an alert for each period if they differ.",
			Do:      "Is the scheduler running, on any replica? The panel \"Calls by outcome\" says whether calls fail, are lost, or do not come. JobRunner.Status has the last error.",
		},
		{
			Name: "LockJobFails", Severity: "warning", For: "1h",
			Expr: above(fmt.Sprintf("sum by (%s) (%s)", each, short.series(instruments.JobRuns, "", is(outcome, "failed", "lost", "not_run"))), "0") +
				" unless on (" + each + ") " + short.series(instruments.JobLastSuccess, ""),
			Summary: "The job" + of + " has failed, and never succeeded since its replicas started",
			Means:   "There were failures for an hour, and no replica knows of a success. LockJobOverdue cannot see this: a replica that starts does not know of successes before.",
			Do:      "As for LockJobOverdue.",
		},
		{
			Name: "LockCacheFails", Severity: "warning", For: "5m",
			Expr:    above(short.share(each, instruments.CacheGets, is(outcome, "failed")), "0.05"),
			Summary: "{{ $value | humanizePercentage }} of the calls of the cache" + of + " fail",
			Means:   "More than 5% of the calls have neither a value of the store nor one that was loaded.",
			Do:      "The panel \"Time of a load\" and the counts of loads by outcome tell a function that fails from a store that fails. With cache.Policy.Stale and cache.Policy.Down a cache bears either for a while.",
		},
	}
}

// Rules is the file of the alerts as Prometheus loads it.
func Rules() []byte {
	var b strings.Builder
	b.WriteString("# Generated from core/instruments. The limits are to begin with: set them to what your callers bear.\n" +
		"groups:\n  - name: lockaround\n    rules:\n")
	for _, a := range Alerts() {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: |-\n          %s\n", a.Name, a.Expr)
		if a.For != "" {
			fmt.Fprintf(&b, "        for: %s\n", a.For)
		}
		fmt.Fprintf(&b, "        labels:\n          severity: %s\n        annotations:\n          summary: %s\n          description: %s\n          runbook_url: %s\n",
			a.Severity, quoted(a.Summary), quoted(a.Means), quoted(Runbook+"#"+strings.ToLower(a.Name)))
	}
	return []byte(b.String())
}

// quoted is text of YAML, which takes what JSON has.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // never of a string
	}
	return strings.NewReplacer(`\u003e`, ">", `\u003c`, "<", `\u0026`, "&").Replace(string(text))
}

// Pages are the parts of the README that are generated: the runbook, and the names in Prometheus.
func Pages() (runbook, names string) {
	var b strings.Builder
	for _, a := range Alerts() {
		after := "at once"
		if a.For != "" {
			after = "after " + a.For
		}
		fmt.Fprintf(&b, "### %s\n\n%s, %s: `%s`\n\n%s\n\n%s\n\n", a.Name, a.Severity, after, a.Expr, a.Means, a.Do)
	}
	runbook = strings.TrimSuffix(b.String(), "\n")
	b.Reset()
	b.WriteString("| instrument | in Prometheus |\n|---|---|\n")
	for _, i := range instruments.All() {
		name := "`" + Family(i) + "`"
		if i.Kind == instruments.Histogram {
			name = fmt.Sprintf("`%[1]s_bucket`, `%[1]s_count`, `%[1]s_sum`", Family(i))
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", i.Name, name)
	}
	return runbook, b.String()
}
