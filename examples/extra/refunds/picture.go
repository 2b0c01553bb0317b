package main

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

const (
	width  = 1000.0 // of the time axis
	margin = 80.0   // before it
	lane   = 5.0    // the least height of a run
	tall   = 26.0   // that of one with nothing beside it
	gap    = 14.0   // between two orders
)

// colours are those of the workers, or clients.
var colours = []string{"#4269d0", "#efb118", "#3ca951", "#a463f2", "#97bbf5", "#9c6b4e", "#6cc5b0", "#ff8ab7"}

// picture draws the runs of each order over time, without a queue above, with one below. Runs side
// by side are below each other. Those that overlap or begin too soon are framed in red.
func picture(without, with []*refunding, limit time.Duration) []byte {
	var b bytes.Buffer
	end := panel(&b, 10, "called at once", without, limit)
	end = panel(&b, end+20, "serial.Must", with, limit)
	fmt.Fprintf(&b, `<rect x="10" y="%.0f" width="14" height="10" fill="white" stroke="#d00" stroke-width="1.5"/>`+
		`<text x="32" y="%.0f">a refund of the order is under way, or began less than %v ago</text>`+"\n", end+14, end+23, limit)
	return slices.Concat(
		fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="13">`+"\n", margin+width+30, end+36),
		[]byte(`<rect width="100%" height="100%" fill="white"/>`+"\n"), b.Bytes(), []byte("</svg>\n"))
}

// panel draws the runs of all orders from top on, and returns where it ends.
func panel(b *bytes.Buffer, top float64, title string, all []*refunding, limit time.Duration) (end float64) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y *refunding) int { return x.From.Compare(y.From) })
	if len(all) == 0 {
		return top
	}
	first, last := all[0].From, all[0].From
	var names []string
	for _, r := range all {
		if last = latest(last, r.From, r.To); !slices.Contains(names, r.Worker) {
			names = append(names, r.Worker)
		}
	}
	slices.Sort(names)
	lasts := last.Sub(first).Seconds()
	x := func(at time.Time) float64 { return margin + width*at.Sub(first).Seconds()/max(lasts, 1e-3) }
	fmt.Fprintf(b, `<text x="10" y="%.0f" font-weight="bold">%s</text>`+"\n", top+12, title)
	for i, n := range names {
		at := margin + 100 + float64(i)*80
		fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="12" height="12" fill="%s"/><text x="%.0f" y="%.0f">%s</text>`+"\n",
			at, top+1, colours[i%len(colours)], at+17, top+12, n)
	}
	y := top + 30
	for _, o := range orders {
		of := slices.DeleteFunc(slices.Clone(all), func(r *refunding) bool { return r.OrderID != o.id })
		lanes, n := sideBySide(of)
		height := max(lane, tall/float64(n))
		fmt.Fprintf(b, `<text x="10" y="%.1f">order %s</text>`+"\n", y+height*float64(n)/2+5, o.id)
		for i, r := range of {
			frame := ""
			if i > 0 && (r.From.Sub(of[i-1].From) < limit || r.From.Before(of[i-1].To)) {
				frame = ` stroke="#d00"`
			}
			colour := colours[slices.Index(names, r.Worker)%len(colours)]
			if r.To.IsZero() {
				death(b, x, y, of, i, colour)
				continue
			}
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"%s><title>refund %d of order %s, %s</title></rect>`+"\n",
				x(r.From), y+float64(lanes[i])*height, max(x(r.To)-x(r.From), 1.5), height-1, colour, frame, r.Number+1, o.id, r.Worker)
		}
		y += height*float64(n) + gap
	}
	axis(b, y, lasts)
	return y + 22
}

// death marks a run that the death of its worker has ended, and how long the order waited then.
func death(b *bytes.Buffer, x func(time.Time) float64, y float64, of []*refunding, i int, colour string) {
	r := of[i]
	from, to := x(r.From), x(r.From)
	if i+1 < len(of) {
		to = x(of[i+1].From)
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.15"/>`+
		`<path d="M%.1f %.1fv%.1f" stroke="%s" stroke-width="2"/><text x="%.1f" y="%.1f" fill="#d00"><title>refund %d of order %s, %s</title>× %s is killed</text>`+"\n",
		from, y, to-from, tall-1, colour, from, y, tall-1, colour, from+5, y+tall/2+4, r.Number+1, r.OrderID, r.Worker, r.Worker)
}

// axis draws a line with seconds below a panel.
func axis(b *bytes.Buffer, y, lasts float64) {
	fmt.Fprintf(b, `<path d="M%.0f %.1fh%.0f" stroke="#999"/>`+"\n", margin, y, width)
	step := 0.01
	for _, next := range []float64{0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60} {
		if lasts/step > 13 {
			step = next
		}
	}
	for n := 0; float64(n)*step <= lasts; n++ {
		at := margin + width*float64(n)*step/lasts
		fmt.Fprintf(b, `<path d="M%.1f %.1fv4" stroke="#999"/><text x="%.1f" y="%.1f" text-anchor="middle" font-size="11" fill="#555">%.3g s</text>`+"\n",
			at, y, at, y+16, float64(n)*step)
	}
}

// sideBySide says in which of n lanes each run is, so that none overlaps another.
func sideBySide(of []*refunding) (lanes []int, n int) {
	var ends []time.Time // of the last run in each lane
	for _, r := range of {
		i := slices.IndexFunc(ends, func(end time.Time) bool { return !r.From.Before(end) })
		if i < 0 {
			i, ends = len(ends), append(ends, r.To)
		}
		ends[i] = latest(r.From, r.To)
		lanes = append(lanes, i)
	}
	return lanes, max(len(ends), 1)
}

// latest ignores runs that have not ended.
func latest(at ...time.Time) time.Time { return slices.MaxFunc(at, time.Time.Compare) }
