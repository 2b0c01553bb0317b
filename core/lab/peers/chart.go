package main

import (
	"fmt"

	"github.com/lockaround/lockaround/core/lab/internal/chart"
)

// svg draws the rows, which share a scale, or returns "" if there are none.
func svg(title string, rows []Row) (string, error) {
	c := chart.Chart{Title: title}
	for _, r := range rows {
		g := chart.Group{Title: r.Scenario.Title}
		if len(r.Scenario.Metrics) > 1 {
			g.Title += ": " + r.Metric.Title
		}
		for _, peer := range takingPart([]Row{r}) {
			g.Bars = append(g.Bars, r.bar(peer))
		}
		c.Groups = append(c.Groups, g)
	}
	return c.SVG()
}

func (r Row) bar(peer string) chart.Bar {
	cell := r.Cells[peer]
	b := chart.Bar{Name: peer, Text: "failed", Mine: peer == subject, None: cell.Counted == 0}
	if b.None {
		return b
	}
	b.Text = r.Metric.Unit.Format(cell.Median)
	if cell.Failed > 0 {
		b.Text += fmt.Sprintf(", %d of %d failed", cell.Failed, cell.Failed+cell.Counted)
	}
	b.Value, b.Min, b.Max = cell.Median, cell.Min, cell.Max
	return b
}
