package dashboards

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/memlock"
)

// TestSlowWaitLeadsToItsTrace lets one call wait for another, and finds in the scrape, at the bucket of that
// wait, an exemplar with the trace of the request and the span of the acquisition.
func TestSlowWaitLeadsToItsTrace(t *testing.T) {
	e := export(t)
	locks := e.engine(t, memlock.New())
	p := core.Policy{Key: "stock:42", Name: "stock", Wait: core.Forever}
	lease, err := locks.Acquire(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, request := e.tracers.Tracer("test").Start(t.Context(), "request")
	done := make(chan error)
	go func() { done <- locks.Do(ctx, p, func(context.Context) error { return nil }) }()
	const waiting = `lock_waiting{`
	testkit.Until(t, "the waiter", func() bool {
		return strings.Contains(line(e.scrape(t), waiting), "} 1")
	})
	time.Sleep(60 * time.Millisecond) // at least; the bucket is that of the wait, however long it was
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	request.End()

	trace := request.SpanContext().TraceID().String()
	var span string
	for _, s := range e.spans.Ended() {
		if s.Name() == "lock acquire stock" && s.SpanContext().TraceID() == request.SpanContext().TraceID() {
			span = s.SpanContext().SpanID().String()
		}
	}
	found := line(e.scrape(t), `span_id="`+span+`"`)
	bucket, exemplar, _ := strings.Cut(found, " # ")
	if !strings.HasPrefix(bucket, "lock_wait_duration_seconds_bucket{") || !strings.Contains(bucket, `lock_name="stock"`) ||
		!strings.Contains(exemplar, `trace_id="`+trace+`"`) || span == "" {
		t.Errorf("the exemplar of trace %s, span %q: %q", trace, span, found)
	}
	for _, fast := range []string{"0.0001", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05"} {
		if strings.Contains(bucket, `le="`+fast+`"`) {
			t.Errorf("a wait of 60 ms is in the bucket %s", bucket)
		}
	}
}

// line is the first one that contains a text.
func line(text, part string) string {
	for l := range strings.Lines(text) {
		if strings.Contains(l, part) {
			return l
		}
	}
	return ""
}
