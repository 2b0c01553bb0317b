package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// unnamed is a driver that cannot store who holds a lock.
type unnamed struct{ driver.Driver }

func (d unnamed) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.Identity, c.Trace = false, false
	return c
}

func TestIdentityThatCannotBeStoredIsRefused(t *testing.T) {
	for _, tt := range []struct {
		identity string
		driver   driver.Driver
		says     string // empty: it is taken
	}{
		{"orders-7f9c", memlock.New(), ""},
		{"shop/orders-7f9c:8080", memlock.New(), ""},
		{"fe80::1%eth0,blue", memlock.New(), ""},
		{strings.Repeat("a", 64), memlock.New(), ""},
		{strings.Repeat("a", 65), memlock.New(), "65 bytes"},
		{"", memlock.New(), "empty"},
		{"orders\n7f9c", memlock.New(), `orders\n7f9c`},
		{"orders 7f9c", memlock.New(), "letters, digits"},
		{"<script>", memlock.New(), "letters, digits"},
		{"orders\xff", memlock.New(), `orders\xff`},
		{"bestellung-ä", memlock.New(), "letters, digits"},
		{`"; DROP TABLE`, memlock.New(), "letters, digits"},
		{"orders-7f9c", unnamed{memlock.New()}, "does not offer that"},
	} {
		e, err := core.New(tt.driver, core.WithNamespace("test"), core.WithIdentity(tt.identity))
		if tt.says == "" {
			if err != nil {
				t.Errorf("%q is refused: %v", tt.identity, err)
				continue
			}
			mustBe(t, e.Close(), nil)
			continue
		}
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") || !utf8.ValidString(err.Error()) {
			t.Errorf("%q: %v; want an ErrPolicy that says %q", tt.identity, err, tt.says)
		}
	}
	open(t, unnamed{memlock.New()}) // without the option there is nothing to refuse
}

func TestIdentityIsTheHostAndTheProcessByDefault(t *testing.T) {
	e := open(t, memlock.New())
	l := mustAcquire(t, e, core.Policy{Key: "k"})
	got := holderOf(t, e).Identity
	host, _ := os.Hostname()
	if !strings.HasSuffix(got, fmt.Sprintf(":%d", os.Getpid())) || driver.ValidIdentity(host) && len(host) < 50 && !strings.HasPrefix(got, host+":") {
		t.Errorf("the identity is %q of process %d on %q", got, os.Getpid(), host)
	}
	mustBe(t, l.Release(t.Context()), nil)
}

// holderOf returns the one holder of the key k.
func holderOf(t *testing.T, e *core.Engine) core.Holder {
	t.Helper()
	st, err := e.Inspect(t.Context(), "k")
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("%+v, %v; want one holder", st, err)
	}
	return st.Holders[0]
}

// forged is a driver of whose store somebody has written other names than processes can have.
type forged struct{ driver.Driver }

func (d forged) Open(c driver.Config) (driver.Session, error) {
	c.Identity = "<b>\n"
	return d.Driver.Open(c)
}

func TestIdentityFromTheStoreIsNotShownIfNoProcessCanHaveIt(t *testing.T) {
	var log buffer
	d := memlock.New()
	l := mustAcquire(t, open(t, forged{d}), core.Policy{Key: "k"})
	e := open(t, d, core.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if got := holderOf(t, e); got.Identity != "" || got.Token != l.Token() {
		t.Errorf("%+v", got)
	}
	_, err := e.Acquire(t.Context(), core.Policy{Key: "k"})
	mustBe(t, err, core.ErrBusy)
	if strings.Contains(log.String(), "lock.holder") || strings.Contains(log.String(), "<b>") {
		t.Errorf("the log says %s", log.String())
	}
	mustBe(t, l.Release(t.Context()), nil)
}

// traced is what a test reads of the spans of engines that share a provider.
type traced struct {
	*tracetest.InMemoryExporter
	*trace.TracerProvider
}

func newTraced(o ...trace.TracerProviderOption) traced {
	exp := tracetest.NewInMemoryExporter()
	return traced{exp, trace.NewTracerProvider(append([]trace.TracerProviderOption{trace.WithSyncer(exp)}, o...)...)}
}

// acquisition returns the span of the acquisition of that name, of which there is one.
func (tr traced) acquisition(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range tr.GetSpans() {
		if s.Name == "lock acquire "+name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans of %q", len(found), name)
	}
	return found[0]
}

// follows fails the test unless the span of waiter names the identity and is linked to that of
// holder, and to no other.
func (tr traced) follows(t *testing.T, waiter, holder, identity string) {
	t.Helper()
	w := tr.acquisition(t, waiter)
	named := ""
	for _, a := range w.Attributes {
		if a.Key == "lock.holder" {
			named = a.Value.AsString()
		}
	}
	if named != identity {
		t.Errorf("the span of %q names %q, want %q", waiter, named, identity)
	}
	_, sp := tr.Tracer("test").Start(t.Context(), "any")
	defer sp.End()
	if _, can := sp.(interface{ AddLink(oteltrace.Link) }); !can {
		t.Skip("this release of OpenTelemetry has no links to spans that have begun")
	}
	want := tr.acquisition(t, holder).SpanContext
	if len(w.Links) != 1 || w.Links[0].SpanContext.TraceID() != want.TraceID() || w.Links[0].SpanContext.SpanID() != want.SpanID() {
		t.Errorf("the span of %q has the links %v, want one to %v of %q", waiter, w.Links, want.SpanID(), holder)
	}
}

func TestSpanOfAWaitIsLinkedToTheHoldersSpan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		fairness core.Fairness
		same     bool // the holder and the waiter are of one process
	}{
		{"of another process", core.Balanced, false},
		{"of the same process", core.Balanced, true},
		{"of the same process, with a place each in the store's queue", core.Strict, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, d := newTraced(), memlock.New()
				with := func(identity string) *core.Engine {
					return open(t, d, core.WithTracerProvider(tr), core.WithIdentity(identity))
				}
				a, b, identity := with("orders-1"), with("orders-2"), "orders-1"
				if tt.same {
					b = a
				}
				p := core.Policy{Key: "k", Wait: core.Forever, Fairness: tt.fairness}
				named := func(name string, wait time.Duration) core.Policy {
					p.Name, p.Wait = name, wait
					return p
				}
				held := mustAcquire(t, a, named("holder", core.Forever))
				results := make(chan error, 2)
				go func() {
					_, err := b.Acquire(t.Context(), named("late", time.Second))
					results <- err
				}()
				synctest.Wait()
				next := make(chan *core.Lease, 1)
				go func() {
					l, err := b.Acquire(t.Context(), named("next", core.Forever))
					results <- err
					next <- l
				}()
				synctest.Wait()
				_, err := b.Acquire(t.Context(), named("try", core.TryOnce))
				mustBe(t, err, core.ErrBusy)
				mustBe(t, <-results, core.ErrTimeout)
				mustBe(t, held.Release(t.Context()), nil)
				mustBe(t, <-results, nil)
				mustBe(t, (<-next).Release(t.Context()), nil)
				for _, waiter := range []string{"late", "next", "try"} {
					tr.follows(t, waiter, "holder", identity)
				}
			})
		})
	}
}

func TestInspectNamesTheSpanThatTookTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, d := newTraced(), memlock.New()
		e, tool := open(t, d, core.WithTracerProvider(tr)), open(t, d)
		for _, name := range []string{"first", "second"} { // the second is granted the key as it waits
			p := core.Policy{Key: "k", Name: name, Wait: core.Forever}
			first := mustAcquire(t, tool, core.Policy{Key: "k"})
			granted := make(chan *core.Lease, 1)
			go func() { granted <- mustAcquire(t, e, p) }()
			synctest.Wait()
			if got := holderOf(t, tool); got.TraceID.IsValid() || got.SpanID.IsValid() {
				t.Errorf("%+v of a lease that was not traced", got)
			}
			mustBe(t, first.Release(t.Context()), nil)
			l := <-granted
			want := tr.acquisition(t, name).SpanContext
			if got := holderOf(t, tool); got.TraceID != want.TraceID() || got.SpanID != want.SpanID() {
				t.Errorf("%+v, want the span %v", got, want.SpanID())
			}
			mustBe(t, l.Release(t.Context()), nil)
		}
	})
}

func TestSpansThatAreNotSampledAreNotNamed(t *testing.T) {
	d := memlock.New()
	never := newTraced(trace.WithSampler(trace.NeverSample()))
	e, tr := open(t, d, core.WithTracerProvider(never), core.WithIdentity("orders-1")), newTraced()
	l := mustAcquire(t, e, core.Policy{Key: "k"})
	if got := holderOf(t, e); got.TraceID.IsValid() || got.SpanID.IsValid() {
		t.Errorf("%+v", got)
	}
	_, err := open(t, d, core.WithTracerProvider(tr)).Acquire(t.Context(), core.Policy{Key: "k", Name: "try"})
	mustBe(t, err, core.ErrBusy)
	if s := tr.acquisition(t, "try"); len(s.Links) != 0 {
		t.Errorf("the span is linked to one that nobody has: %v", s.Links)
	}
	mustBe(t, l.Release(t.Context()), nil)
}

func TestLogOfACallThatFoundTheKeyTakenNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, d := newTraced(), memlock.New()
		held := mustAcquire(t, open(t, d, core.WithTracerProvider(tr), core.WithIdentity("orders-1")), core.Policy{Key: "card:4242", Name: "holder"})
		for _, tt := range []struct {
			level slog.Level
			want  bool
		}{{slog.LevelInfo, false}, {slog.LevelDebug, true}} {
			var log buffer
			e := open(t, d, core.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: tt.level}))))
			for _, wait := range []time.Duration{core.TryOnce, time.Second} {
				_, err := e.Acquire(t.Context(), core.Policy{Key: "card:4242", Name: "pay", Wait: wait})
				if err == nil || strings.Contains(err.Error(), "orders-1") || strings.Contains(fmt.Sprintf("%+v", err), "orders-1") {
					t.Errorf("the error, which clients may see, is %v", err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := e.Acquire(ctx, core.Policy{Key: "card:4242", Name: "cancelled"})
			mustBe(t, err, context.Canceled)
			text, lines := log.String(), 0
			for _, outcome := range []string{"busy", "timeout"} {
				if strings.Contains(text, "lock.outcome="+outcome+" lock.holder=orders-1 lock.holder.trace_id="+tr.acquisition(t, "holder").SpanContext.TraceID().String()) {
					lines++
				}
			}
			if tt.want && (lines != 2 || strings.Count(text, "\n") != 2 || strings.Contains(text, "4242")) || !tt.want && text != "" {
				t.Errorf("at level %v the log is\n%s", tt.level, text)
			}
		}
		mustBe(t, held.Release(t.Context()), nil)
	})
}
