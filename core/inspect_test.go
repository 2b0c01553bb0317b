package core_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestInspectTellsWhoHoldsAndHowManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other, tool := open(t, d, core.WithIdentity("orders-1")), open(t, d), open(t, d)
		st, err := tool.Inspect(t.Context(), "k")
		mustBe(t, err, nil)
		if st.Held || st.Waiting != 0 || len(st.Holders) != 0 {
			t.Errorf("of a key that nobody uses: %+v", st)
		}
		p := permit3.Policy
		p.TTL = time.Minute
		a, b := mustAcquire(t, e, p), mustAcquire(t, other, read.Policy)
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() { waited <- other.Do(ctx, write.Policy, func(context.Context) error { return nil }) }()
		synctest.Wait()
		st, err = tool.Inspect(t.Context(), "k")
		mustBe(t, err, nil)
		if !st.Held || st.Waiting != 1 || len(st.Holders) != 2 || st.Token != b.Token() {
			t.Fatalf("%+v", st)
		}
		want := core.Holder{Mode: core.Semaphore, Limit: 3, Token: a.Token(), Since: st.Holders[0].Since, Remaining: time.Minute, Identity: "orders-1"}
		if st.Holders[0] != want || time.Since(st.Holders[0].Since) != 0 {
			t.Errorf("%+v, want %+v", st.Holders[0], want)
		}
		cancel()
		mustBe(t, <-waited, context.Canceled)
		mustBe(t, a.Release(t.Context()), nil)
		mustBe(t, b.Release(t.Context()), nil)
		_, err = tool.Inspect(t.Context(), "")
		mustBe(t, err, core.ErrKey)
	})
}

func TestForceReleaseTellsTheHolderAndOutranksIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		var text bytes.Buffer
		e, other := open(t, d), open(t, d)
		tool := open(t, d, core.WithForceRelease(), core.WithLogger(slog.New(slog.NewTextHandler(&text, nil))))
		token, err := tool.ForceRelease(t.Context(), "k")
		mustBe(t, err, nil)
		if token != 0 {
			t.Errorf("token %d of a key that was never held", token)
		}
		held := mustAcquire(t, e, write.Policy)
		var next int64
		var waiter sync.WaitGroup
		waiter.Go(func() {
			mustBe(t, other.Do(t.Context(), write.Policy, func(ctx context.Context) error {
				l, _ := core.LeaseFrom(ctx)
				next = l.Token()
				return nil
			}), nil)
		})
		synctest.Wait()
		token, err = tool.ForceRelease(core.WithOperator(t.Context(), "dana"), "k")
		mustBe(t, err, nil)
		<-held.Done()
		mustBe(t, held.Err(), core.ErrLost)
		mustBe(t, held.Release(t.Context()), core.ErrLost)
		waiter.Wait()
		if token <= held.Token() || next < token {
			t.Errorf("the tokens are %d, then %d by force, then %d", held.Token(), token, next)
		}
		if log := text.String(); !strings.Contains(log, "by force") || !strings.Contains(log, "lock.operator=dana") || strings.Contains(log, "key") {
			t.Errorf("the log says %q", log)
		}
	})
}

// overtaken is a driver that does something between the engine's look at a key and its oust.
type overtaken struct {
	driver.Driver
	between func()
}

func (d *overtaken) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return overtakenSession{s, d}, err
}

type overtakenSession struct {
	driver.Session
	d *overtaken
}

func (s overtakenSession) Oust(ctx context.Context, key string, upTo int64) error {
	s.d.between()
	return s.Session.Oust(ctx, key, upTo)
}

func TestForceReleaseUpToATokenSparesEveryLaterHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		between := func() {}
		e := open(t, d)
		tool := open(t, &overtaken{d, func() { between() }}, core.WithForceRelease())
		first := mustAcquire(t, e, write.Policy)
		shown := first.Token()
		between = func() { t.Error("the store is asked to take the key from a holder that was not meant") }
		if _, err := tool.ForceReleaseUpTo(t.Context(), "k", shown-1); !errors.Is(err, core.ErrNotHeld) {
			t.Errorf("of a token that is too small: %v", err)
		}
		var next *core.Lease
		between = func() { // the key changes hands after the look
			mustBe(t, first.Release(t.Context()), nil)
			next = mustAcquire(t, e, write.Policy)
		}
		token, err := tool.ForceReleaseUpTo(t.Context(), "k", shown)
		mustBe(t, err, nil)
		if token <= shown || token > next.Token() {
			t.Errorf("the tokens are %d, then %d by force, then %d", shown, token, next.Token())
		}
		synctest.Wait()
		mustBe(t, next.Check(t.Context()), nil)
		between = func() { t.Error("the store is asked to take the key from the later holder") }
		if _, err := tool.ForceReleaseUpTo(t.Context(), "k", shown); !errors.Is(err, core.ErrNotHeld) {
			t.Errorf("once a later one holds the key: %v", err)
		}
		mustBe(t, next.Check(t.Context()), nil)
		between = func() {}
		if _, err = tool.ForceReleaseUpTo(t.Context(), "k", next.Token()); err != nil {
			t.Error(err)
		}
		mustBe(t, next.Release(t.Context()), core.ErrLost)
	})
}

func TestForceReleaseUpToTheNewestOfSeveralHoldersTakesTheKeyFromAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		var leases []*core.Lease
		for range 3 {
			leases = append(leases, mustAcquire(t, open(t, d), permit3.Policy))
		}
		mustBe(t, leases[2].Release(t.Context()), nil) // whose token was the latest
		tool := open(t, d, core.WithForceRelease())
		if _, err := tool.ForceReleaseUpTo(t.Context(), "k", leases[0].Token()); !errors.Is(err, core.ErrNotHeld) {
			t.Errorf("up to the first: %v", err)
		}
		mustBe(t, leases[0].Check(t.Context()), nil)
		_, err := tool.ForceReleaseUpTo(t.Context(), "k", leases[1].Token())
		mustBe(t, err, nil)
		for _, l := range leases[:2] {
			mustBe(t, l.Release(t.Context()), core.ErrLost)
		}
	})
}

func TestForceReleaseIsOffUnlessAskedFor(t *testing.T) {
	e := open(t, memlock.New())
	l := mustAcquire(t, e, write.Policy)
	_, err := e.ForceRelease(t.Context(), "")
	mustBe(t, err, core.ErrPolicy)
	_, err = e.ForceRelease(t.Context(), "k")
	mustBe(t, err, core.ErrPolicy)
	var typed *core.Error
	if !errors.As(err, &typed) || !strings.Contains(typed.Detail, "WithForceRelease") {
		t.Errorf("the error says %v", err)
	}
	mustBe(t, l.Release(t.Context()), nil)
}

// unheard is a driver whose word that a lease is lost does not arrive.
type unheard struct{ driver.Driver }

func (d unheard) Open(c driver.Config) (driver.Session, error) {
	c.Sink = withoutLost{c.Sink}
	return d.Driver.Open(c)
}

type withoutLost struct{ driver.Sink }

func (withoutLost) Lost(driver.ID, error) {}

func TestForceReleaseEndsTheHoldsOfItsOwnEngineBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, unheard{memlock.New()}, core.WithForceRelease())
		for _, p := range []core.Policy{write.Policy, read.Policy} {
			held := mustAcquire(t, e, p)
			_, err := e.ForceRelease(t.Context(), "k")
			mustBe(t, err, nil)
			mustBe(t, held.Err(), core.ErrLost)
			next := mustAcquire(t, e, write.Policy)
			mustBe(t, held.Release(t.Context()), core.ErrLost)
			mustBe(t, next.Release(t.Context()), nil)
		}
	})
}

func TestNilLeaseIsHeldByNobody(t *testing.T) {
	l, ok := core.LeaseFrom(t.Context())
	if l != nil || ok {
		t.Fatalf("LeaseFrom a context without a lease: %v, %v", l, ok)
	}
	for op, err := range map[string]error{
		"Err": l.Err(), "Check": l.Check(t.Context()), "Extend": l.Extend(t.Context(), time.Minute), "Downgrade": l.Downgrade(t.Context()),
		"Release": l.Release(t.Context()), "Context": context.Cause(l.Context(t.Context())),
	} {
		if !errors.Is(err, core.ErrNotHeld) {
			t.Errorf("%s: %v; want ErrNotHeld", op, err)
		}
	}
	select {
	case <-l.Done():
	default:
		t.Error("Done is open")
	}
	if l.Key() != "" || l.Keys() != nil || l.Token() != 0 || l.TokenOf("k") != 0 || !l.Deadline().IsZero() {
		t.Errorf("key %q, keys %q, tokens %d and %d, deadline %v", l.Key(), l.Keys(), l.Token(), l.TokenOf("k"), l.Deadline())
	}
}

func TestSilentStoreDelaysNeitherInspectNorForceRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d, core.WithForceRelease(), core.WithStoreTimeout(time.Second))
		l := mustAcquire(t, e, write.Policy)
		d.Stall()
		for _, patience := range []time.Duration{100 * time.Millisecond, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			want := map[bool]error{true: context.DeadlineExceeded, false: core.ErrUnavailable}[patience < time.Second]
			for range 2 {
				start := time.Now()
				_, err := e.Inspect(ctx, "k")
				mustBe(t, err, want)
				_, err = e.ForceRelease(ctx, "k")
				mustBe(t, err, want)
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("took %v", took)
				}
			}
			cancel()
		}
		d.Heal()
		mustBe(t, l.Release(t.Context()), nil)
	})
}
