package main

import (
	"fmt"
	"strings"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

func render(r Results) (map[string][]byte, error) {
	return contest.Render("queues", r, markdown(r), scenarios, peers)
}

// ratio is ours to theirs in the rounds that both have, which what else a machine does hits alike.
func ratio(mine, other contest.Cell) string {
	of := contest.Cell{Values: map[int]float64{}}
	for round, v := range mine.Values {
		if o := other.Values[round]; o > 0 {
			of.Values[round] = v / o
		}
	}
	if len(of.Values) == 0 {
		return "–"
	}
	return of.Range(measure.Digits)
}

// markdown writes what the peers are ahead in, and the results as a table with notes.
func markdown(r Results) string {
	var b strings.Builder
	b.WriteString(r.Ran() + "\n")
	rows, columns := contest.Rows(scenarios, r.Trials), contest.TakingPart(peers, r.Trials)
	behind := false
	for _, row := range rows {
		for _, p := range columns {
			if row.Ahead(p.Name, contest.Subject) {
				behind = true
				fmt.Fprintf(&b, "- %s is ahead in “%s” of `%s`.\n", p.Name, row.Metric.Title, row.Scenario.Name)
			}
		}
	}
	if !behind {
		b.WriteString("No peer is ahead in any of these figures.\n")
	}
	b.WriteString("\nMedian over the rounds, and its range. The ratio is lockaround's figure to asynq's of the same round.\n\n| | | ")
	b.WriteString(contest.Heads(r, columns) + "| ratio |\n|---|---|---" + strings.Repeat("|---", len(columns)) + "|---|\n")
	before := ""
	for _, row := range rows {
		name, title := "`"+row.Scenario.Name+"`", row.Scenario.Title
		if row.Scenario.Name == before {
			name, title = "", ""
		}
		before = row.Scenario.Name
		fmt.Fprintf(&b, "| %s | %s | %s ", name, title, row.Metric.Title)
		for _, p := range columns {
			fmt.Fprintf(&b, "| %s ", row.Cells[p.Name].Text(row.Metric.Unit))
		}
		fmt.Fprintf(&b, "| %s |\n", ratio(row.Cells[contest.Subject], row.Cells["asynq"]))
	}
	b.WriteString("\n" + contest.Notes(columns, r.Trials))
	return b.String()
}
