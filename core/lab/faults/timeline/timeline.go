// Package timeline draws what happened to a key: who had its lock when, what went wrong
// meanwhile, and what the guard refused.
package timeline

import (
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// Geometry in SVG units; timeline.svg.tmpl has the rest.
const (
	left     = 96  // where time begins
	width    = 840 // of all of it
	topLane  = 92  // of the faults
	lane     = 26
	barInset = 5
	narrow   = 1.2 // the least that shows
	colours  = 5
)

//go:embed timeline.svg.tmpl
var text string

var drawing = template.Must(template.New("timeline").Funcs(template.FuncMap{"text": html.EscapeString}).Parse(text))

// Picture is what to draw.
type Picture struct {
	Title    string
	Captions []string // lines below the title
	Key      string
	From, To int64 // by the history's clock
}

type scene struct {
	Picture
	Width, Height, Left, Right, Top, Bottom int
	Lanes                                   []label
	Faults                                  []bar
	Bands                                   []bar // of faults, behind everything
	Claims                                  []bar
	Beliefs                                 []bar // from a claim's end to the holder's knowing of it
	Overlaps                                []bar
	Refused, Written                        []point
	Ticks                                   []label
}

type bar struct {
	X, Y, Width, Height float64
	Text                string
	Colour              int
}

type point struct{ X, Y float64 }

type label struct {
	X, Y float64
	Text string
}

// Draw returns an SVG.
func Draw(p Picture, events []history.Event, r check.Rules) (string, error) {
	claims := slices.DeleteFunc(slices.Clone(check.Claims(events, p.Key, r)), func(c *check.Claim) bool {
		return max(c.End, c.Heard) < p.From || c.Start > p.To
	})
	s := scene{Picture: p, Width: left + width + 16, Left: left, Right: left + width, Top: topLane}
	lanes := s.lanes(claims)
	s.Bottom = topLane + lane*(len(lanes)+1)
	s.Height = s.Bottom + 58
	for _, c := range claims {
		y := lanes[c.Process]
		if c.End > c.Start {
			s.Claims = append(s.Claims, s.bar(c.Start, c.End, y, c.Process))
		}
		if until := known(c); until > c.End+int64(time.Millisecond) {
			s.Beliefs = append(s.Beliefs, s.bar(c.End, until, y, c.Process))
		}
	}
	s.overlaps(claims)
	s.events(events, lanes)
	step := tick(p.To - p.From)
	for t := int64(0); t <= p.To-p.From; t += step {
		s.Ticks = append(s.Ticks, label{X: s.x(p.From + t), Text: fmt.Sprintf("%.3g s", time.Duration(t).Seconds())})
	}
	var out strings.Builder
	if err := drawing.Execute(&out, s); err != nil {
		return "", err
	}
	return out.String(), nil
}

// lanes gives each process one, in their order.
func (s *scene) lanes(claims []*check.Claim) map[int]float64 {
	var who []int
	for _, c := range claims {
		if !slices.Contains(who, c.Process) {
			who = append(who, c.Process)
		}
	}
	slices.Sort(who)
	s.Lanes = append(s.Lanes, label{Y: topLane, Text: "faults"})
	out := map[int]float64{}
	for i, p := range who {
		out[p] = float64(topLane + lane*(i+1))
		s.Lanes = append(s.Lanes, label{Y: out[p], Text: fmt.Sprint("process ", p)})
	}
	return out
}

// overlaps marks when two had the lock.
func (s *scene) overlaps(claims []*check.Claim) {
	for i, c := range claims {
		for _, o := range claims[:i] {
			if to := min(c.End, o.End); to > c.Start {
				b := s.bar(c.Start, to, topLane+lane, 0)
				b.Height = float64(s.Bottom) - b.Y
				s.Overlaps = append(s.Overlaps, b)
			}
		}
	}
}

// events draws the faults, and what the guard was asked for.
func (s *scene) events(events []history.Event, lanes map[int]float64) {
	for _, e := range events {
		if e.Return < s.From || e.Call > s.To {
			continue
		}
		switch y, known := lanes[e.Process]; {
		case e.Op == history.Fault:
			b := s.bar(e.Call, e.Return, topLane, 0)
			b.Text = e.Name
			if e.Process != 0 {
				b.Text = fmt.Sprintf("%s of process %d", e.Name, e.Process)
			}
			s.Faults = append(s.Faults, b)
			b.Y, b.Height = topLane, float64(s.Bottom-topLane)
			s.Bands = append(s.Bands, b)
		case !known || e.Key != s.Key || e.Op != history.Write && e.Error != history.Stale:
		case e.Error == history.Stale:
			s.Refused = append(s.Refused, point{s.x(e.Call), y + lane/2})
		case e.OK():
			s.Written = append(s.Written, point{s.x(e.Call), y + lane/2})
		}
	}
}

func (s *scene) x(t int64) float64 {
	t = max(s.From, min(t, s.To))
	return left + width*float64(t-s.From)/float64(s.To-s.From)
}

func (s *scene) bar(from, to int64, y float64, process int) bar {
	x := s.x(from)
	return bar{X: x, Y: y + barInset, Width: max(s.x(to)-x, narrow), Height: lane - 2*barInset, Colour: process % colours}
}

// tick is the distance of marks on the axis.
func tick(span int64) int64 {
	for _, step := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second} {
		if span/int64(step) <= 12 {
			return int64(step)
		}
	}
	return int64(10 * time.Second)
}

// known is when a holder knew that its claim was over: it had heard so, or released.
func known(c *check.Claim) int64 {
	switch {
	case c.Heard != 0:
		return c.Heard
	case c.Released != nil:
		return c.Released.Call
	}
	return c.End
}
