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

// lines draws the rows of a sweep, or returns "" if there are none.
func lines(title string, rows []Row) (string, error) {
	c := chart.Lines{Title: title, Under: "callers"}
	for _, peer := range takingPart(rows) {
		curve := chart.Curve{Name: peer, Mine: ours(peer)}
		for _, r := range rows {
			if cell := r.Cells[peer]; cell.Counted > 0 && cell.Min > 0 {
				curve.Points = append(curve.Points, chart.Point{X: float64(r.Scenario.Callers), Y: cell.Median, Min: cell.Min, Max: cell.Max})
			}
		}
		c.Curves = append(c.Curves, curve)
	}
	return c.SVG()
}

func (r Row) bar(peer string) chart.Bar {
	cell := r.Cells[peer]
	b := chart.Bar{Name: peer, Text: cell.missing(), Mine: ours(peer), None: cell.Counted == 0}
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
