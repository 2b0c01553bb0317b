package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockaround/lockaround/core/driver"
)

// stopper stops a process when a statement that has a text was executed.
type stopper struct {
	after   string
	stopped chan struct{} // closed once it has stopped
	once    sync.Once
	resume  chan struct{} // closed to let it go on
}

type stopKey struct{}

func (s *stopper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, stopKey{}, strings.Contains(q.SQL, s.after))
}

func (s *stopper) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(stopKey{}) == true {
		s.once.Do(func() {
			close(s.stopped)
			<-s.resume
		})
	}
}

// TestProcessThatStopsOnTheFirstUseOfAKeyDoesNotKeepItsRow stops a process that has made a key's
// row, and neither locked it again nor committed. MySQL has a setting of its own for that.
func TestProcessThatStopsOnTheFirstUseOfAKeyDoesNotKeepItsRow(t *testing.T) {
	t.Parallel()
	d := products[0].database(t, products[0].server.Shared(t))
	config, err := pgx.ParseConfig(d.SourceAt(d.On.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	stop := &stopper{after: "INSERT INTO lockaround_lock", stopped: make(chan struct{}), resume: make(chan struct{})}
	config.Tracer = stop
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	p, other := open(t, d.locks(t, db)), open(t, d.locks(t, d.DB))
	first := async(func() error { _, err := p.Acquire(t.Context(), request("stock", false)); return err })
	<-stop.stopped
	g, err := other.Acquire(t.Context(), request("stock", false))
	close(stop.resume)
	if err != nil {
		t.Fatalf("acquire a key that a stopped process has never had: %v", err)
	}
	var held *driver.HeldError
	if err := <-first; !errors.As(err, &held) {
		t.Errorf("the process that goes on: %v, want a %T", err, held)
	}
	if err := other.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
		t.Error(err)
	}
}
