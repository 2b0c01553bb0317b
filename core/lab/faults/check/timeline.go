package check

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// Geometry in SVG units; timeline.svg.tmpl has the rest.
const (
	left     = 96  // where time begins
	width    = 840 // of all of it
	topLane  = 86  // of the faults
	lane     = 26
	barInset = 5
	narrow   = 1.2 // the least that shows
	colours  = 5

	faultLane = 36  // has a label above its bar
	faultBar  = 17  // where that begins
	letter    = 6.8 // how wide one is at most, on average
	legendRow = 20
)

//go:embed timeline.svg.tmpl
var picture string

var drawing = template.Must(template.New("timeline").Funcs(template.FuncMap{"text": html.EscapeString}).Parse(picture))

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
	first                                   float64 // lane of a process
	Lanes                                   []label
	Faults                                  []bar
	Bands                                   []bar // of faults, behind everything
	Claims                                  []bar
	Beside                                  []bar // claims of those who may hold together
	Beliefs                                 []bar // from a claim's end to the holder's knowing of it
	Overlaps                                []bar
	Refused, Written                        []point
	Ticks                                   []label
	Legend                                  []sign
}

type bar struct {
	X, Y, Width, Height float64
	Text                string
	Colour              int
	End                 bool // the text ends with the bar, and does not begin with it
}

// sign is one of the legend, from X to the text at Y.
type sign struct {
	X, Y        float64
	Top, Height float64 // of its bar
	Kind, Text  string
}

// Middle is where a point is.
func (s sign) Middle() float64 { return s.X + 10 }

type point struct{ X, Y float64 }

type label struct {
	X, Y float64
	Text string
}

// Draw returns an SVG of what happened to a key: who had its lock when, what went wrong
// meanwhile, and what the guard refused.
func Draw(p Picture, events []history.Event, r Rules) (string, error) {
	claims := slices.DeleteFunc(slices.Clone(Claims(events, p.Key, r)), func(c *Claim) bool {
		return max(c.End, c.Heard) < p.From || c.Start > p.To
	})
	s := scene{Picture: p, Width: left + width + 16, Left: left, Right: left + width, Top: topLane}
	s.faults(events)
	lanes := s.lanes(claims)
	s.Bottom = int(s.first) + lane*len(lanes)
	for _, c := range claims {
		y := lanes[c.Process]
		if b := s.bar(c.Start, c.End, y, c.Process); c.End > c.Start {
			if c.Exclusive() {
				s.Claims = append(s.Claims, b)
			} else {
				b.Y, b.Height = b.Y+b.Height/2, b.Height/2
				s.Beside = append(s.Beside, b)
			}
		}
		if until := known(c); until > c.End+int64(time.Millisecond) {
			s.Beliefs = append(s.Beliefs, s.bar(c.End, until, y, c.Process))
		}
	}
	s.overlaps(claims)
	s.guarded(events, lanes)
	s.legend()
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

// faults draws what went wrong. What would lie on another one, with its label, is in a lane
// below it.
func (s *scene) faults(events []history.Event) {
	var ends []float64 // by lane
	for _, e := range slices.SortedStableFunc(slices.Values(events), func(a, b history.Event) int { return cmp.Compare(a.Call, b.Call) }) {
		if e.Op != history.Fault || e.Return < s.From || e.Call > s.To {
			continue
		}
		b := s.bar(e.Call, e.Return, 0, 0)
		b.Text = e.Name
		if e.Process != 0 {
			b.Text = fmt.Sprintf("%s of process %d", e.Name, e.Process)
		}
		from, to := b.X, max(b.X+b.Width, b.X+letter*float64(len(b.Text)))
		if to > left+width {
			b.End, to = true, b.X+b.Width
			from = min(from, to-letter*float64(len(b.Text)))
		}
		at := slices.IndexFunc(ends, func(end float64) bool { return end+letter < from })
		if at < 0 {
			at = len(ends)
			ends = append(ends, 0)
		}
		ends[at] = to
		b.Y = float64(topLane + faultLane*at + faultBar)
		s.Faults = append(s.Faults, b)
	}
	s.Lanes = append(s.Lanes, label{Y: topLane + faultBar - barInset, Text: "faults"})
	s.first = float64(topLane + faultLane*max(len(ends), 1))
}

// lanes gives each process one, in their order.
func (s *scene) lanes(claims []*Claim) map[int]float64 {
	var who []int
	for _, c := range claims {
		if !slices.Contains(who, c.Process) {
			who = append(who, c.Process)
		}
	}
	slices.Sort(who)
	out := map[int]float64{}
	for i, p := range who {
		out[p] = s.first + float64(lane*i)
		s.Lanes = append(s.Lanes, label{Y: out[p], Text: fmt.Sprint("process ", p)})
	}
	for _, f := range s.Faults {
		f.Y, f.Height = topLane, s.first+float64(lane*len(who))-topLane
		s.Bands = append(s.Bands, f)
	}
	return out
}

// overlaps marks when two had the lock who may not have it together.
func (s *scene) overlaps(claims []*Claim) {
	for i, c := range claims {
		for _, o := range claims[:i] {
			if to := min(c.End, o.End); to > c.Start && (c.Exclusive() || o.Exclusive()) {
				b := s.bar(c.Start, to, s.first, 0)
				b.Height = float64(s.Bottom) - b.Y
				s.Overlaps = append(s.Overlaps, b)
			}
		}
	}
}

// guarded draws what the guard was asked for.
func (s *scene) guarded(events []history.Event, lanes map[int]float64) {
	for _, e := range events {
		y, known := lanes[e.Process]
		switch {
		case !known || e.Return < s.From || e.Call > s.To || e.Key != s.Key || e.Op != history.Read && e.Op != history.Write:
		case e.Error == history.Stale:
			s.Refused = append(s.Refused, point{s.x(e.Call), y + lane/2})
		case e.Op == history.Write && e.OK():
			s.Written = append(s.Written, point{s.x(e.Call), y + lane/2})
		}
	}
}

// legend explains what is in the picture, below its axis.
func (s *scene) legend() {
	x, y := 8.0, float64(s.Bottom+40)
	for _, of := range []struct {
		kind, text string
		there      bool
	}{
		{"claim", "has the lock of " + s.Key, len(s.Claims) > 0},
		{"beside", "has it beside others: a reader, or one of a semaphore", len(s.Beside) > 0},
		{"belief", "has it no more, and does not know", len(s.Beliefs) > 0},
		{"overlap", "two have it at once", len(s.Overlaps) > 0},
		{"written", "accepted write", len(s.Written) > 0},
		{"refused", "refused request", len(s.Refused) > 0},
		{"fault", "fault", len(s.Faults) > 0},
	} {
		if !of.there {
			continue
		}
		const swatch, gap = 26, 14
		long := swatch + letter*float64(len(of.text))
		if x > 8 && x+long > left+width {
			x, y = 8, y+legendRow
		}
		const high = 14
		bar := sign{x, y, y - high/2, high, of.kind, of.text}
		if of.kind == "beside" {
			bar.Top, bar.Height = y, high/2
		}
		s.Legend = append(s.Legend, bar)
		x += long + gap
	}
	s.Height = int(y) + legendRow
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
func known(c *Claim) int64 {
	switch {
	case c.Heard != 0:
		return c.Heard
	case c.Released != nil:
		return c.Released.Call
	}
	return c.End
}
