package main

import (
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
