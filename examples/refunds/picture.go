package main

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

const (
	width  = 1000.0
	margin = 90.0
	row    = 44.0
	gap    = 60.0
)

// colours are those of the workers, or clients.
var colours = []string{"#4269d0", "#efb118", "#3ca951", "#a463f2", "#97bbf5", "#9c6b4e", "#6cc5b0", "#ff8ab7"}

// picture draws the runs of each order over time, without a queue above, with one below. Runs
// that overlap or begin too soon are framed in red; one that its worker's death has ended is hatched.
func picture(without, with []*refunding, limit time.Duration) []byte {
	var b bytes.Buffer
	panel := gap + float64(len(orders))*row
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="13">`+"\n", width+margin+20, 2*panel+30)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	draw(&b, "called at once", without, limit, 0)
	draw(&b, "decorator.Serial", with, limit, panel)
	fmt.Fprintln(&b, `</svg>`)
	return b.Bytes()
}

// draw draws one panel.
func draw(b *bytes.Buffer, title string, all []*refunding, limit time.Duration, top float64) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y *refunding) int { return x.From.Compare(y.From) })
	if len(all) == 0 {
		return
	}
	first, last := all[0].From, all[0].From
	var names []string
	for _, r := range all {
		for _, at := range []time.Time{r.From, r.To} {
			if at.After(last) {
				last = at
			}
		}
		if !slices.Contains(names, r.Worker) {
			names = append(names, r.Worker)
		}
	}
	slices.Sort(names)
	x := func(at time.Time) float64 {
		return margin + width*at.Sub(first).Seconds()/max(last.Sub(first).Seconds(), 1e-3)
	}
	fmt.Fprintf(b, `<text x="10" y="%.0f" font-weight="bold">%s</text>`+"\n", top+24, title)
	for i, n := range names {
		at := margin + 160 + float64(i)*80
		fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="12" height="12" fill="%s"/><text x="%.0f" y="%.0f">%s</text>`+"\n",
			at, top+13, colours[i%len(colours)], at+17, top+24, n)
	}
	for line, o := range orders {
		y := top + 36 + float64(line)*row
		fmt.Fprintf(b, `<text x="10" y="%.0f">order %s</text><line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n",
			y+26, o.id, margin, margin+width, y+row-4, y+row-4)
		var before *refunding
		for _, r := range all {
			if r.OrderID != o.id {
				continue
			}
			to, opacity := r.To, "0.9"
			if to.IsZero() {
				to, opacity = r.From.Add(20*time.Millisecond), "0.3"
			}
			frame := ""
			if before != nil && (r.From.Sub(before.From) < limit || r.From.Before(before.To)) {
				frame = ` stroke="#d00" stroke-width="1.5"`
			}
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="%s"%s><title>refund %d of order %s, %s</title></rect>`+"\n",
				x(r.From), y+6, max(x(to)-x(r.From), 1.5), row-14, colours[slices.Index(names, r.Worker)%len(colours)], opacity, frame, r.Number+1, o.id, r.Worker)
			if r.To.IsZero() {
				fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="#d00" font-weight="bold">×</text>`+"\n", x(r.From)-4, y+8)
			}
			before = r
		}
	}
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="end">%.1f s</text>`+"\n", margin+width, top+36+float64(len(orders))*row+14, last.Sub(first).Seconds())
}
