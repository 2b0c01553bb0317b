package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

func render(r Results) (map[string][]byte, error) {
	return contest.Render("caches", r, markdown(r), scenarios, peers)
}

// row is one metric of a scenario over all rounds.
type row = contest.Row[Pace, Open]

// best reports whether no cache of the same kind, with copies or without, has a better
// median.
func best(r row, p Peer) bool {
	return !p.Extra && !slices.ContainsFunc(peers, func(other Peer) bool {
		return !other.Extra && other.Copies == p.Copies && r.Ahead(other.Name, p.Name)
	})
}

// text is a peer's cell as it is shown.
func text(r row, p Peer) string {
	c := r.Cells[p.Name]
	if len(c.Values) == 0 || !best(r, p) {
		return c.Text(r.Metric.Unit)
	}
	median := r.Metric.Unit.Format(c.Median())
	return "**" + median + "**" + strings.TrimPrefix(c.Text(r.Metric.Unit), median)
}

// markdown writes the results as a table with notes.
func markdown(r Results) string {
	var b strings.Builder
	columns := contest.TakingPart(peers, r.Trials)
	b.WriteString(r.Ran())
	b.WriteString("\nMedian over the rounds, and its range. **Bold** is the best median of those with copies in the process, and of those without.\n\n| | ")
	b.WriteString(contest.Heads(r, columns) + "|\n|---|---" + strings.Repeat("|---", len(columns)) + "|\n| | copies in the process ")
	for _, p := range columns {
		fmt.Fprintf(&b, "| %s ", map[bool]string{true: "yes", false: "no"}[p.Copies])
	}
	b.WriteString("|\n")
	before := ""
	for _, row := range contest.Rows(scenarios, r.Trials) {
		title := row.Scenario.Title
		if row.Scenario.Name == before {
			title = ""
		}
		before = row.Scenario.Name
		fmt.Fprintf(&b, "| %s | %s ", title, row.Metric.Title)
		for _, p := range columns {
			fmt.Fprintf(&b, "| %s ", text(row, p))
		}
		b.WriteString("|\n")
	}
	b.WriteString("\n" + contest.Notes(columns, r.Trials))
	return b.String()
}
