package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/decorator/serial"
)

// refunding is one refund as the provider has seen it.
type refunding struct {
	Refund
	Worker   string
	From, To time.Time // To is zero if it has not ended: its worker has died
}

// ledger collects what happens.
type ledger struct {
	mu    sync.Mutex
	all   []*refunding
	begun func(event) // called at each beginning; nil for none
}

func (l *ledger) tell(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Begins {
		l.all = append(l.all, &refunding{Refund: e.Refund, Worker: e.Worker, From: e.At})
		if l.begun != nil {
			l.begun(e)
		}
		return
	}
	for _, r := range slices.Backward(l.all) {
		if r.Refund == e.Refund && r.Worker == e.Worker && r.To.IsZero() {
			r.To = e.At
			return
		}
	}
}

func (l *ledger) paid() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all {
		if !r.To.IsZero() {
			n++
		}
	}
	return n
}

// verdict counts what should not be.
type verdict struct{ refunds, overlapping, close, disordered, twice int }

// judge looks at what has happened to each order.
func judge(all []*refunding, limit time.Duration) (v verdict) {
	for _, o := range orders {
		var of []*refunding
		for _, r := range all {
			if r.OrderID == o.id {
				of = append(of, r)
			}
		}
		slices.SortFunc(of, func(a, b *refunding) int { return a.From.Compare(b.From) })
		paid := make(map[int]bool)
		for i, r := range of {
			if !r.To.IsZero() {
				v.refunds++
				if paid[r.Number] {
					v.twice++
				}
				paid[r.Number] = true
			}
			if i == 0 {
				continue
			}
			before := of[i-1]
			if r.From.Sub(before.From) < limit {
				v.close++
			}
			if r.From.Before(before.To) {
				v.overlapping++
			}
			if r.Number < before.Number {
				v.disordered++
			}
		}
	}
	return v
}

func asked() (n int) {
	for _, o := range orders {
		n += o.refunds
	}
	return n
}

// ask has the clients ask for all refunds, those of an order in their order. Every fifth is
// asked for twice, as by a client that has had no answer.
func ask(each func(client int, r Refund) error) error {
	turn := make([]chan int, len(orders)) // the number of the next refund; who has it asks
	for i := range turn {
		turn[i] = make(chan int, 1)
		turn[i] <- 0
	}
	errs := make([]error, clients)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i, o := range orders {
				for {
					n := <-turn[i]
					if n >= o.refunds || errs[client] != nil {
						turn[i] <- n
						break
					}
					errs[client] = each(client, Refund{o.id, n})
					turn[i] <- n + 1
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

const heading = "                   refunds  overlapping  too close  out of order  twice\n"

func (v verdict) print(w io.Writer, name string) {
	fmt.Fprintf(w, "%-18s %7d %12d %10d %13d %6d\n", name, v.refunds, v.overlapping, v.close, v.disordered, v.twice)
}

// demonstrate refunds without a queue and with one. The error says what went wrong with it.
func demonstrate(ctx context.Context, o options, stdout io.Writer) error {
	fmt.Fprintf(stdout, "%d clients ask for %d refunds of %d orders; a refund takes %v, and the provider takes one of an order in %v.\n\n%s",
		clients, asked(), len(orders), o.takes, o.limit, heading)
	without, err := direct(ctx, o)
	if err != nil {
		return err
	}
	judge(without.all, o.limit).print(stdout, "called at once")
	with, killed, err := queued(ctx, o)
	if err != nil {
		return err
	}
	v := judge(with.all, o.limit)
	v.print(stdout, "serial.Must")
	fmt.Fprintln(stdout, "\n"+story(with.all, killed))
	if o.picture != "" {
		if err := os.WriteFile(o.picture, picture(without.all, with.all, o.limit), 0o644); err != nil {
			return fmt.Errorf("write the picture: %w", err)
		}
		fmt.Fprintln(stdout, "The picture is in", o.picture)
	}
	if v != (verdict{refunds: asked()}) {
		return fmt.Errorf("with serial.Must: %+v; want %d refunds and nothing else", v, asked())
	}
	return nil
}

// direct calls the provider for each request at once.
func direct(ctx context.Context, o options) (*ledger, error) {
	l := &ledger{}
	var calls sync.WaitGroup
	err := ask(func(client int, r Refund) error {
		p := &provider{fmt.Sprint("client ", client+1), o.takes, l.tell}
		calls.Go(func() { _ = p.Refund(ctx, r) })
		time.Sleep(o.takes / 20) // requests come one by one
		return nil
	})
	calls.Wait()
	return l, err
}

// queued enqueues each request, and has workers call the provider. One of them is killed in
// the middle of a refund of the first order.
func queued(ctx context.Context, o options) (l *ledger, killed *event, err error) {
	l = &ledger{}
	o.namespace = "refunds-example:" + rand.Text()
	start := inMemory
	if len(o.store()) > 0 {
		start = processes
	}
	w, err := start(ctx, o, l.tell)
	if err != nil {
		return nil, nil, err
	}
	defer w.stop()
	l.mu.Lock()
	l.begun = func(e event) {
		if killed == nil && e.OrderID == orders[0].id && e.Number == orders[0].refunds/2 {
			w.kill(e.Worker)
			killed = &e
		}
	}
	l.mu.Unlock()
	err = ask(func(_ int, r Refund) error {
		for range 1 + r.Number%5/4 {
			if _, err := w.refunds.Enqueue(ctx, r, serial.ItemID(fmt.Sprint(r.Number))); err != nil {
				return err
			}
		}
		return nil
	})
	deadline := time.Now().Add(time.Duration(asked())*max(o.limit, o.takes) + time.Minute)
	for err == nil && l.paid() < asked() {
		if time.Now().After(deadline) {
			err = fmt.Errorf("%d of %d refunds after all this time", l.paid(), asked())
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return l, killed, err
}

// story says what became of the worker that was killed.
func story(all []*refunding, killed *event) string {
	if killed == nil {
		return "No worker was killed."
	}
	again := slices.Clone(all)
	slices.SortFunc(again, func(a, b *refunding) int { return cmp.Compare(a.From.UnixNano(), b.From.UnixNano()) })
	for _, r := range again {
		if r.Refund == killed.Refund && r.From.After(killed.At) {
			return fmt.Sprintf("The worker %s was killed in a refund of order %s, and %s went on %.1fs later.",
				killed.Worker, killed.OrderID, r.Worker, r.From.Sub(killed.At).Seconds())
		}
	}
	return "The worker that was killed has had no successor."
}

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
