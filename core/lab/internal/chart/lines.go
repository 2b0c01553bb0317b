package chart

import (
	_ "embed" // the template
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// Geometry of lines in SVG units; lines.svg.tmpl has the rest.
const (
	plotLeft   = 56
	plotRight  = 590 // names of the curves are behind it
	plotTop    = 44
	plotBottom = 320
	nameApart  = 15 // the least between the names of two curves
)

//go:embed lines.svg.tmpl
var linesText string

var linesDrawing = template.Must(template.New("lines").Funcs(template.FuncMap{"text": escape}).Parse(linesText))

// Lines is curves over a number, both on logarithmic scales.
type Lines struct {
	Title  string
	Under  string // what the number is
	Curves []Curve
}

// Curve is a figure over that number. Its points have numbers and figures above 0.
type Curve struct {
	Name   string
	Mine   bool // it is drawn in another colour
	Points []Point
}

// Point is a figure, and the range that it was in.
type Point struct{ X, Y, Min, Max float64 }

// SVG draws the lines. Without points it is "".
func (l Lines) SVG() (string, error) {
	across, up := newScale(plotLeft, plotRight), newScale(plotBottom, plotTop)
	for _, c := range l.Curves {
		for _, p := range c.Points {
			across.include(p.X)
			up.include(p.Min)
			up.include(p.Max)
		}
	}
	if across.least > across.most {
		return "", nil
	}
	p := plot{Title: l.Title, Under: l.Under, Left: plotLeft, Right: plotRight, Top: plotTop, Bottom: plotBottom}
	for _, v := range across.seen {
		p.Ticks = append(p.Ticks, tick{across.at(v), strconv.FormatFloat(v, 'f', -1, 64)})
	}
	for _, v := range up.round() {
		p.Grid = append(p.Grid, tick{up.at(v), short(v)})
	}
	for i, c := range l.Curves {
		d := curve{Name: c.Name, Mine: c.Mine, Class: i}
		for j, point := range c.Points {
			x, y := across.at(point.X), up.at(point.Y)
			d.Dots = append(d.Dots, dot{x, y, up.at(point.Min), up.at(point.Max)})
			d.Path += string("ML"[min(j, 1)]) + number(x) + " " + number(y)
			d.Label = y + 4
		}
		if len(d.Dots) > 0 {
			p.Curves = append(p.Curves, d)
		}
	}
	spread(p.Curves)
	var b strings.Builder
	err := linesDrawing.Execute(&b, p)
	return b.String(), err
}

// plot is what the template draws.
type plot struct {
	Title, Under             string
	Left, Right, Top, Bottom float64
	Ticks, Grid              []tick
	Curves                   []curve
}

type tick struct {
	At   float64
	Text string
}

type curve struct {
	Name  string
	Mine  bool
	Class int
	Path  string
	Dots  []dot
	Label float64 // the baseline of its name
}

type dot struct{ X, Y, Low, High float64 }

// spread moves names apart that would be on each other.
func spread(curves []curve) {
	order := make([]*curve, len(curves))
	for i := range curves {
		order[i] = &curves[i]
	}
	slices.SortFunc(order, func(a, b *curve) int { return int(math.Copysign(1, a.Label-b.Label)) })
	for i := 1; i < len(order); i++ {
		order[i].Label = max(order[i].Label, order[i-1].Label+nameApart)
	}
}

// scale is logarithmic.
type scale struct {
	from, to    float64 // in SVG units
	least, most float64
	seen        []float64
}

func newScale(from, to float64) *scale {
	return &scale{from: from, to: to, least: math.Inf(1), most: math.Inf(-1)}
}

func (s *scale) include(v float64) {
	s.least, s.most = min(s.least, v), max(s.most, v)
	if i, found := slices.BinarySearch(s.seen, v); !found {
		s.seen = slices.Insert(s.seen, i, v)
	}
}

func (s *scale) at(v float64) float64 {
	if s.most == s.least {
		return (s.from + s.to) / 2
	}
	return s.from + (s.to-s.from)*math.Log(v/s.least)/math.Log(s.most/s.least)
}

// round are the numbers 1, 2 and 5 of each decade that the scale has.
func (s *scale) round() (all []float64) {
	for decade := math.Pow(10, math.Floor(math.Log10(s.least))); decade <= s.most; decade *= 10 {
		for _, v := range []float64{decade, 2 * decade, 5 * decade} {
			if v >= s.least && v <= s.most {
				all = append(all, v)
			}
		}
	}
	return all
}

// short writes thousands as such.
func short(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v/1000, 'g', 4, 64) + " k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
