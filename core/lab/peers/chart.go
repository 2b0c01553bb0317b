package main

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

// Geometry of a chart, in SVG units; charts.svg.tmpl has the rest.
const (
	chartLeft  = 100 // where bars begin
	chartWidth = 430 // of the longest bar
	barHeight  = 18
	barGap     = 4
	headHeight = 26 // of a scenario's title
	topHeight  = 40
)

//go:embed chart.svg.tmpl
var chartText string

var chartTemplate = template.Must(template.New("chart").Funcs(template.FuncMap{"text": escape}).Parse(chartText))

// chart is a bar chart of rows that share a scale.
type chart struct {
	Title         string
	Width, Height int
	Heads         []head
	Bars          []bar
}

type head struct {
	Y    int
	Text string
}

type bar struct {
	Peer, Value string
	Mine        bool // the subject's
	X, Y        int
	Text        int // where the text's baseline is
	Height      int
	Length      float64
	From, To    float64 // the range over the rounds; equal if there is none
	After       float64 // where the value is written
}

// svg draws the rows, or returns "" if there are none.
func svg(title string, rows []Row) (string, error) {
	if len(rows) == 0 {
		return "", nil
	}
	c := chart{Title: title, Width: 720}
	longest := 0.0
	for _, r := range rows {
		for _, cell := range r.Cells {
			longest = max(longest, cell.Max)
		}
	}
	scale := 0.0
	if longest > 0 {
		scale = chartWidth / longest
	}
	y := topHeight
	for _, r := range rows {
		text := r.Scenario.Title
		if len(r.Scenario.Metrics) > 1 {
			text += ": " + r.Metric.Title
		}
		c.Heads = append(c.Heads, head{Y: y + headHeight - 8, Text: text})
		y += headHeight
		for _, peer := range takingPart([]Row{r}) {
			c.Bars = append(c.Bars, r.bar(peer, y, scale))
			y += barHeight + barGap
		}
		y += barGap
	}
	c.Height = y + barGap
	var b strings.Builder
	err := chartTemplate.Execute(&b, c)
	return b.String(), err
}

func (r Row) bar(peer string, y int, scale float64) bar {
	cell := r.Cells[peer]
	b := bar{Peer: peer, Value: "failed", Mine: peer == subject, X: chartLeft, Y: y, Text: y + barHeight - 5, Height: barHeight, After: chartLeft + 6}
	if cell.Counted == 0 {
		return b
	}
	b.Value = r.Metric.Unit.Format(cell.Median)
	if cell.Failed > 0 {
		b.Value += fmt.Sprintf(", %d of %d failed", cell.Failed, cell.Failed+cell.Counted)
	}
	b.Length = max(cell.Median*scale, 1)
	b.From, b.To = chartLeft+cell.Min*scale, chartLeft+cell.Max*scale
	b.After = max(b.To, chartLeft+b.Length) + 6
	return b
}

// escape makes text of XML.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

// Middle is the height of the line that shows the range.
func (b bar) Middle() int { return b.Y + b.Height/2 }

// Whisker reports whether there is a range to show.
func (b bar) Whisker() bool { return b.To-b.From >= 2 }
