package main

import (
	"fmt"
	"strings"
)

// markdown has a table for each figure: a row for each way, a column for each number of
// callers, the best of a column in bold.
func (r results) markdown() string {
	var b strings.Builder
	b.WriteString(heading)
	fmt.Fprintf(&b, "%s; median of %d rounds of %v.\n", r.machine, r.Rounds, r.Watch)
	for _, t := range []struct {
		title, format string
		value         func(figure) float64
		less          bool
	}{
		{"Thousand scripts per second", "%.1f", func(f figure) float64 { return f.rate / 1e3 }, false},
		{"Median from the wish to the reply, µs", "%.0f", func(f figure) float64 { return micros(f.median) }, true},
		{"99th percentile, µs", "%.0f", func(f figure) float64 { return micros(f.p99) }, true},
		{"Processor time of the process for each script, µs", "%.1f", func(f figure) float64 { return micros(f.cpu) }, true},
		{"Processor time of Redis for each script, µs", "%.1f", func(f figure) float64 { return micros(f.server) }, true},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| callers |", t.title)
		for _, n := range r.Callers {
			fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(r.Callers)) + "\n")
		for _, w := range r.Ways {
			fmt.Fprintf(&b, "| %s |", w.name)
			for _, n := range r.Callers {
				v := t.value(r.figures[cell{w.name, n}])
				text := fmt.Sprintf(t.format, v)
				best := true
				for _, o := range r.Ways {
					if other := t.value(r.figures[cell{o.name, n}]); other != v && t.less == (other < v) {
						best = false
					}
				}
				if best {
					text = "**" + text + "**"
				}
				fmt.Fprintf(&b, " %s |", text)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

const heading = `# Ways to send small scripts

` + "`go run ./core/lab/pipeline -awake -out core/lab/pipeline/README.md`" + ` writes this page. Goroutines of one process each
run a script of about the cost of granting a lock (HMGET, TIME, HSET, PEXPIRE) on a key of their own, wait
for the reply and run the next.

- *straight*: each call by itself on a connection of go-redis's pool.
- *AutoPipeline*: go-redis's own, with its defaults for calls that wait, with batches at once, and full duplex.
- *worker*: a call leaves at once if fewer batches than the number are under way; those that come meanwhile are
  the next batch. Goroutines of the batcher send them.
- *leader*: the same, and callers send the batches: one that finds a place sends its own call, and at its end
  gives the place to the first of those who wait. *Yields*: runtime.Gosched before the next batch is taken.
  *Joint*: a batch is one script for all of its keys, which a Cluster would refuse.
- *rueidis*: another client library, which pipelines everything on one connection.

`
