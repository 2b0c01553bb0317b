package main

import (
	"fmt"
	"slices"

	"github.com/lockaround/lockaround/core/lab/internal/figure"
)

// Row is one metric of a scenario over all rounds, for all peers.
type Row struct {
	Scenario Scenario
	Metric   Metric
	Cells    map[string]Cell // by peer; those that take part
}

// Cell is one metric of one peer over all rounds. If no trial counts, only Failed is set.
type Cell struct {
	Median, Min, Max float64
	Counted, Failed  int // trials
}

// summarize has a row for each metric that there are trials of, in the order given.
func summarize(of []Scenario, trials []Trial) (rows []Row) {
	for _, s := range of {
		for _, m := range s.Metrics {
			row := Row{Scenario: s, Metric: m, Cells: map[string]Cell{}}
			for _, p := range peers {
				if c := summary(s, m, p, trials); c.Counted+c.Failed > 0 {
					row.Cells[p.Name] = c
				}
			}
			if len(row.Cells) > 0 {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func summary(s Scenario, m Metric, p Peer, trials []Trial) (c Cell) {
	var values []float64
	for _, t := range trials {
		switch v, ok := t.Measures[m.Name]; {
		case t.Scenario != s.Name || t.Peer != p.Name:
		case ok && t.Error == "":
			values = append(values, v)
		default:
			c.Failed++
		}
	}
	if c.Counted = len(values); c.Counted > 0 {
		c.Median, c.Min, c.Max = figure.Median(values), slices.Min(values), slices.Max(values)
	}
	return c
}

// text is a peer's cell as it is shown.
func (r Row) text(p Peer) string {
	c, ok := r.Cells[p.Name]
	switch {
	case !ok:
		return "–"
	case c.Counted == 0:
		return "failed"
	}
	text := r.Metric.Unit.Format(c.Median)
	if r.best(p) {
		text = "**" + text + "**"
	}
	if c.Min != c.Max {
		text += fmt.Sprintf(" (%s–%s)", figure.Digits(c.Min), figure.Digits(c.Max))
	}
	if c.Failed > 0 {
		text += fmt.Sprintf("; %d failed", c.Failed)
	}
	return text
}

// best reports whether no cache of the same kind, with copies or without, has a better
// median.
func (r Row) best(p Peer) bool {
	mine := r.Cells[p.Name]
	for _, other := range peers {
		c, ok := r.Cells[other.Name]
		if !ok || c.Counted == 0 || other.Bare || other.Copies != p.Copies || c.Median == mine.Median {
			continue
		}
		if r.Metric.More == (c.Median > mine.Median) {
			return false
		}
	}
	return !p.Bare
}

// notes are the errors and failures of the trials, each with what it is of.
func notes(trials []Trial) (all []string) {
	for _, t := range trials {
		of := fmt.Sprintf("`%s`, %s, round %d: ", t.Scenario, t.Peer, t.Round)
		switch {
		case t.Error != "":
			all = append(all, of+t.Error)
		case t.Failed > 0:
			all = append(all, of+t.failures())
		}
	}
	return all
}
