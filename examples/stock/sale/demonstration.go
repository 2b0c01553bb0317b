package sale

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
)

// demonstrate sells the stock out without a lock, then with one, and serves if
// asked to. The error says what went wrong with locks, or that a run failed.
func demonstrate(ctx context.Context, o options, stdout, stderr io.Writer) error {
	where := fmt.Sprintf("lock and stock %s", o.place)
	if o.store != nil {
		where = fmt.Sprintf("lock in %s, stock %s", strings.TrimSpace(o.store.Name+" "+o.shown()), o.place)
	}
	fmt.Fprintf(stdout, "%d buyers at once for %d units; %s, buyers in %s.\n\n", o.buyers, o.units, where, crew(o))
	fmt.Fprintln(stdout, heading)

	o.locked = false
	without, err := sellOut(ctx, o, stderr)
	if err != nil {
		return fmt.Errorf("without a lock: %w", err)
	}
	fmt.Fprintln(stdout, row("without a lock", o, without))

	o.locked = true
	with, err := sellOut(ctx, o, stderr)
	if err != nil {
		return fmt.Errorf("with locks: %w", err)
	}
	fmt.Fprintln(stdout, row("with locks", o, with))

	fmt.Fprint(stdout, explanation)
	if err := verdict(o, with); err != nil {
		return err
	}
	if o.serve {
		return serve(ctx, o, stdout)
	}
	return nil
}

// shown is where the locks are kept, without what may be a secret.
func (o options) shown() string {
	if o.at == "" || strings.Contains(o.at, "@") {
		return ""
	}
	return "at " + o.at
}

const explanation = `
The race: a sale reads the number of units and writes one less, in two requests. Everybody
who reads before the first of them writes sees the same number, and sells the same unit again.
`

func crew(o options) string {
	if o.processes == 1 {
		return "one process"
	}
	return fmt.Sprintf("%d processes", o.processes)
}

// sellOut is one run: a full stock, all buyers, the tally.
func sellOut(ctx context.Context, o options, stderr io.Writer) (t tally, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	o.namespace, o.addr, o.grpcAddr = rand.Text(), anyPort, anyPort
	st, err := fill(ctx, o)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()

	if o.processes > 1 {
		t, err = buyInReplicas(ctx, o, st, stderr)
		if err != nil {
			return t, err
		}
	} else {
		s, err := open(o, st, core.Forever)
		if err != nil {
			return t, err
		}
		t, err = buy(ctx, s, o.buyers)
		if err := errors.Join(err, s.Close()); err != nil {
			return t, err
		}
	}
	if t.Failed > 0 {
		return t, fmt.Errorf("%d of %d buyers got no answer; the first: %s", t.Failed, o.buyers, t.Failure)
	}
	t.Left, err = st.Units(ctx, sku)
	return t, err
}

// fill opens the stock of a run with all its units in it.
func fill(ctx context.Context, o options) (stock, error) {
	st, err := openStock(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := st.SetUnits(ctx, sku, o.units); err != nil {
		return nil, errors.Join(fmt.Errorf("fill the stock %s: %w", o.place, err), st.Close())
	}
	return st, nil
}

func openStock(ctx context.Context, o options) (stock, error) {
	if o.place.kind == nowhere {
		return newHTTPStock()
	}
	if err := o.place.check(ctx); err != nil {
		return nil, fmt.Errorf("open the stock %s: %w", o.place, err)
	}
	return newRedisStock(o.place, o.namespace), nil
}

const heading = "                   sold  oversold  refused   left   p50 wait   p99 wait  hand-offs  lock round trips"

func row(name string, o options, t tally) string {
	counts := fmt.Sprintf("%-16s %6d %9d %8d %6d", name, t.Sold, max(t.Sold-o.units, 0), t.Refused, t.Left)
	if !o.locked {
		return counts + fmt.Sprintf(" %10s %10s %10s %17s", "-", "-", "-", "-")
	}
	return counts + fmt.Sprintf(" %10s %10s %10d %17d", millis(t.wait(50)), millis(t.wait(99)), t.Holds-t.Grants, t.Trips)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// verdict checks a run with locks: every unit sold once, as far as there were
// buyers, and the stock agrees.
func verdict(o options, t tally) error {
	want := min(o.units, o.buyers)
	switch {
	case t.Sold > o.units:
		return fmt.Errorf("with locks: oversold by %d", t.Sold-o.units)
	case t.Sold != want:
		return fmt.Errorf("with locks: sold %d, %d expected", t.Sold, want)
	case t.Left != o.units-want:
		return fmt.Errorf("with locks: %d left in the stock, %d expected", t.Left, o.units-want)
	}
	return nil
}

// serve restocks and keeps the guarded entrances open until ctx ends, with the page of locks
// and buyers who keep that busy.
func serve(ctx context.Context, o options, stdout io.Writer) error {
	o.namespace = rand.Text()
	st, err := fill(ctx, o)
	if err != nil {
		return err
	}
	s, err := open(o, st, 2*time.Second)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	fmt.Fprintf(stdout, invitation, o.units, s.url, sku, sku, s.target, s.url, pagePath, regulars)
	s.crowd(ctx)
	return errors.Join(s.Close(), st.Close())
}

const invitation = `
Restocked: %d units. Buy one, or stop with Ctrl-C:

  curl -i -X POST %s/products/%s/deduct
  grpcurl -plaintext -d '{"sku":"%s"}' %s stock.v1.Stock/Deduct

Who holds and who waits is at %s%s, where %d more buyers want other products.
`
