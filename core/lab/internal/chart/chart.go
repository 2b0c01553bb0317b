// Package chart draws bars with the range that each was in.
package chart

import (
	_ "embed" // the template
	"strings"
	"text/template"
)

// Geometry in SVG units; chart.svg.tmpl has the rest.
const (
	left       = 100 // where bars begin
	leftLong   = 150 // the same, if a name is long
	longName   = 15  // letters of one that is
	barWidth   = 430 // of the longest bar
	barHeight  = 18
	barGap     = 4
	headHeight = 26 // of a group's title
	topHeight  = 40
)

//go:embed chart.svg.tmpl
var text string

var drawing = template.Must(template.New("chart").Funcs(template.FuncMap{"text": escape}).Parse(text))

// Chart is groups of bars.
type Chart struct {
	Title  string
	Groups []Group
	Apart  bool // each group has a scale of its own; otherwise they share one
}

// Group is bars with a title.
type Group struct {
	Title string
	Bars  []Bar
}

// Bar is a figure.
type Bar struct {
	Name, Text      string
	Mine            bool // it is drawn in another colour
	Value, Min, Max float64
	None            bool // there is no value, only the text
}

// SVG draws the chart. Without groups it is "".
func (c Chart) SVG() (string, error) {
	if len(c.Groups) == 0 {
		return "", nil
	}
	p := picture{Title: c.Title, Width: 720}
	from, shared := left, 0.0
	for _, g := range c.Groups {
		shared = max(shared, g.longest())
		for _, b := range g.Bars {
			if len(b.Name) > longName {
				from, p.Width = leftLong, 720+leftLong-left
			}
		}
	}
	y := topHeight
	for _, g := range c.Groups {
		p.Heads = append(p.Heads, head{Y: y + headHeight - 8, Text: g.Title})
		y += headHeight
		longest := shared
		if c.Apart {
			longest = g.longest()
		}
		scale := 0.0
		if longest > 0 {
			scale = barWidth / longest
		}
		for _, b := range g.Bars {
			p.Bars = append(p.Bars, b.draw(from, y, scale))
			y += barHeight + barGap
		}
		y += barGap
	}
	p.Height = y + barGap
	var b strings.Builder
	err := drawing.Execute(&b, p)
	return b.String(), err
}

func (g Group) longest() (longest float64) {
	for _, b := range g.Bars {
		longest = max(longest, b.Max)
	}
	return longest
}

// picture is what the template draws.
type picture struct {
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
	Name, Value string
	Mine        bool
	X, Y        int
	Text        int // where the text's baseline is
	Height      int
	Length      float64
	From, To    float64 // the range; equal if there is none
	After       float64 // where the value is written
}

func (b Bar) draw(left, y int, scale float64) bar {
	d := bar{Name: b.Name, Value: b.Text, Mine: b.Mine, X: left, Y: y, Text: y + barHeight - 5, Height: barHeight, After: float64(left) + 6}
	if b.None {
		return d
	}
	d.Length = max(b.Value*scale, 1)
	d.From, d.To = float64(left)+b.Min*scale, float64(left)+b.Max*scale
	d.After = max(d.To, float64(left)+d.Length) + 6
	return d
}

// Middle is the height of the line that shows the range.
func (b bar) Middle() int { return b.Y + b.Height/2 }

// Whisker reports whether there is a range to show.
func (b bar) Whisker() bool { return b.To-b.From >= 2 }

// escape makes text of XML.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
