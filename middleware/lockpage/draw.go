package lockpage

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockaround/lockaround/core/watch"
)

// The size of a sparkline, in the units of its view box.
const (
	sparkHeight = 20
	sparkStep   = 3
)

// The waits that a sparkline tells apart: all have one scale, so that rows can be compared.
const (
	leastWait = time.Millisecond
	mostWait  = time.Minute
)

// level is how high a wait stands, from 0 to 1, on a scale of powers of ten.
func level(d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	v := math.Log(float64(d)/float64(leastWait)) / math.Log(float64(mostWait)/float64(leastWait))
	return min(max(v, 0.05), 1)
}

// sparkSlots is how many buckets of waits a sparkline has room for.
const sparkSlots = 60

// spark is the path of bars for the longest waits, the latest at the right.
func spark(waits []watch.Bucket) string {
	var b strings.Builder
	waits = waits[max(len(waits)-sparkSlots, 0):]
	for i, w := range waits {
		if w.Longest > 0 {
			h := math.Round(level(w.Longest)*sparkHeight*10) / 10
			fmt.Fprintf(&b, "M%d %dv%gh2v%gz", (i+sparkSlots-len(waits))*sparkStep, sparkHeight, -h, h)
		}
	}
	return b.String()
}

// longest is the longest of the waits, and how many callers waited.
func longest(waits []watch.Bucket) (d time.Duration, callers int64) {
	for _, w := range waits {
		if w.Longest > 0 {
			d, callers = max(d, w.Longest), callers+w.Callers
		}
	}
	return d, callers
}

// The size of the time line of a key.
const (
	lineWidth  = 1200
	lineTop    = 22 // of the first lane: the axis has its figures above
	laneHeight = 22
	maxLanes   = 8 // the others share the last one
)

// timeline is the picture of a key's events: a lane for each process, a bar for each hold.
type timeline struct {
	Width, Height int
	Lanes         []lane
	Bars          []bar
	Marks         []mark
	Ticks         []tick
}

type lane struct {
	Y    int // of its middle
	Name string
}

type bar struct {
	X, Width float64
	Y        int // of its top
	Open     bool
}

type mark struct {
	X     float64
	Y     int
	Kind  string
	Shape template.HTML
}

type tick struct {
	X            float64
	Says, Anchor string
}

const (
	laneNames = 190 // what the names of the lanes take of the width
	lineEnd   = lineWidth - 20
	barHeight = 10
	ticks     = 5
)

// hold tells the holds of a time line apart.
type hold struct {
	instance string
	token    int64
}

// drawn returns the picture of a key's events; nil without any. A hold of which no end is known
// goes on if somebody has it; otherwise the word of its end was lost.
func drawn(k *watch.Key) *timeline {
	events := k.Events
	if len(events) == 0 {
		return nil
	}
	first, last := events[0].At, events[len(events)-1].At
	span := max(last.Sub(first), 100*time.Millisecond)
	at := func(t time.Time) float64 {
		x := lineEnd - float64(last.Sub(t))/float64(span)*(lineEnd-laneNames)
		return math.Round(min(max(x, laneNames), lineEnd)*10) / 10
	}
	l := &timeline{Width: lineWidth}
	of := map[string]int{}
	inLane := func(e *watch.Event) int {
		n, ok := of[e.Instance]
		if !ok {
			n = min(len(of), maxLanes-1)
			of[e.Instance] = n
			if n == len(l.Lanes) {
				l.Lanes = append(l.Lanes, lane{Y: lineTop + n*laneHeight + laneHeight/2, Name: short(e.Identity)})
			} else {
				l.Lanes[n].Name = "others"
			}
		}
		return l.Lanes[n].Y
	}
	began := map[hold]int{} // the bars that are open
	for i := range events {
		e := &events[i]
		y, h := inLane(e), hold{e.Instance, e.Token}
		switch e.Kind {
		case watch.Taken, watch.HandedOn:
			began[h] = len(l.Bars)
			l.Bars = append(l.Bars, bar{X: at(e.At), Y: y - barHeight/2, Open: true})
		case watch.Released, watch.Lost:
			if n, ok := began[h]; ok {
				delete(began, h)
				l.Bars[n].close(at(e.At))
			}
		}
		k := class(e.Kind.String())
		l.Marks = append(l.Marks, mark{X: at(e.At), Y: y, Kind: k, Shape: shape(k)})
	}
	for _, h := range k.Holders {
		if n, ok := began[hold{h.Instance, h.Token}]; ok {
			delete(began, hold{h.Instance, h.Token})
			l.Bars[n].close(lineEnd)
			l.Bars[n].Open = true
		}
	}
	for _, n := range began {
		l.Bars[n].close(l.Bars[n].X)
	}
	for i := range ticks {
		ago := span * time.Duration(ticks-1-i) / (ticks - 1)
		l.Ticks = append(l.Ticks, tick{X: at(last.Add(-ago)), Says: "−" + brief(ago), Anchor: "middle"})
	}
	l.Ticks[ticks-1] = tick{X: lineEnd, Says: "last event", Anchor: "end"}
	l.Height = lineTop + len(l.Lanes)*laneHeight + 6
	return l
}

func (b *bar) close(x float64) {
	b.Width, b.Open = max(math.Round((x-b.X)*10)/10, 2), false
}

// short is a name that fits before a lane.
func short(who string) string {
	const most = 24
	if who == "" {
		return "unknown"
	}
	r := []rune(printable(who))
	if len(r) > most {
		return "…" + string(r[len(r)-most+1:])
	}
	return string(r)
}

// shape is what a mark of the time line looks like; kinds differ in shape as well as in colour.
func shape(kind string) template.HTML {
	switch kind {
	case "renewed":
		return `<path d="M0-4V4"/>`
	case "released":
		return `<circle r="3.5"/>`
	case "lost", "refused", "timed-out":
		return `<path d="M-4-4 4 4M-4 4 4-4"/>`
	}
	return `<path d="M0-5 5 0 0 5-5 0z"/>`
}

// maxText is how many characters of a key, a name or a cell are shown.
const maxText = 120

// mostMarks is how many marks a character may have above, below or across it: more would reach
// into the lines beside.
const mostMarks = 2

// printable is a text that others control, as it is shown: without characters that move or
// hide its surroundings, and not too long. html/template escapes it.
func printable(s string) string {
	var b strings.Builder
	shown, marks := 0, 0
	for i, r := range s {
		if shown == maxText {
			fmt.Fprintf(&b, "… (%s bytes)", grouped(int64(len(s))))
			break
		}
		shown++
		if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		switch {
		case marks > mostMarks:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// brief is a duration to the two or three figures that a reader takes in.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// minutes is the window of counts.
func minutes(d time.Duration) string {
	return fmt.Sprintf("%d minutes", int(d.Round(time.Minute).Minutes()))
}

// grouped is a number with its thousands apart.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	from := len(s) % 3
	if strings.HasPrefix(s, "-") {
		from = (len(s)-1)%3 + 1
	}
	var b strings.Builder
	b.WriteString(s[:from])
	for i := from; i < len(s); i += 3 {
		if i > 0 && s[:i] != "-" {
			b.WriteByte(',')
		}
		b.WriteString(s[i : i+3])
	}
	return b.String()
}

// perSecond is a rate.
func perSecond(r float64) string {
	switch {
	case r <= 0:
		return ""
	case r < 0.1:
		return "< 0.1/s"
	case r < 10:
		return fmt.Sprintf("%.1f/s", r)
	}
	return grouped(int64(r)) + "/s"
}

// cell is a value of a panel as text; a time and a duration from then on are for the page.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return printable(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case int:
		return grouped(int64(v))
	case int64:
		return grouped(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Duration:
		return brief(v)
	}
	return printable(fmt.Sprint(v))
}
