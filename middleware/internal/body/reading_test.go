package body

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lockaround/lockaround/core"
)

func TestBodyIsReadAheadAndPutBack(t *testing.T) {
	const limit = 10
	short, exact, long := "short", strings.Repeat("x", limit), strings.Repeat("x", limit+1)
	for _, tc := range []struct {
		name    string
		plan    Plan
		text    string
		length  int64 // as announced; 0 means the text's
		whole   string
		refused bool // with core.ErrTooLarge
	}{
		{name: "short", plan: Plan{Limit: limit}, text: short, whole: short},
		{name: "exactly the limit", plan: Plan{Limit: limit}, text: exact, whole: exact},
		{name: "over the limit", plan: Plan{Limit: limit}, text: long},
		{name: "unknown length", plan: Plan{Limit: limit}, text: short, length: -1},
		{name: "never", plan: Plan{Limit: limit, Never: true}, text: short},
		{name: "longer than announced", plan: Plan{Limit: limit}, text: long, length: 3},
		{name: "needed", plan: Plan{Limit: limit, Needed: true}, text: short, whole: short},
		{name: "needed, unknown length", plan: Plan{Limit: limit, Needed: true}, text: exact, length: -1, whole: exact},
		{name: "needed, over the limit", plan: Plan{Limit: limit, Needed: true}, text: long, refused: true},
		{name: "needed, unknown length over the limit", plan: Plan{Limit: limit, Needed: true}, text: long, length: -1, refused: true},
		{name: "none", plan: Plan{Limit: limit, Needed: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tc.text))
			if tc.length != 0 {
				r.ContentLength = tc.length
			}
			for range 2 { // the second lock of a route
				whole, err := tc.plan.Read(r)
				if string(whole) != tc.whole || errors.Is(err, core.ErrTooLarge) != tc.refused || !tc.refused && err != nil {
					t.Fatalf("got %q, %v; want %q", whole, err, tc.whole)
				}
				if tc.refused {
					return
				}
			}
			if rest, err := io.ReadAll(r.Body); string(rest) != tc.text || err != nil {
				t.Errorf("the handler reads %q, %v; want %q", rest, err, tc.text)
			}
		})
	}
}

func TestNextLockKnowsABodyThatWasConsumedSinceTheFirst(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("hello"))
	p := Plan{Limit: 5, Needed: true}
	for range 2 {
		if whole, err := p.Read(r); string(whole) != "hello" || err != nil {
			t.Errorf("got %q, %v", whole, err)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
	}
}

// closed notes that it was closed.
type closed struct {
	io.Reader
	done bool
}

func (c *closed) Close() error { c.done = true; return nil }

func TestBodyThatWasReadAheadClosesItsSource(t *testing.T) {
	for _, length := range []int64{5, 2} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		source := &closed{Reader: strings.NewReader("hello")}
		r.Body, r.ContentLength = source, length
		if _, err := (Plan{Limit: 5 - length%5}).Read(r); err != nil {
			t.Fatal(err)
		}
		if err := r.Body.Close(); err != nil || !source.done {
			t.Errorf("closing: %v, source closed %v", err, source.done)
		}
	}
}

func TestBodyThatFailsSaysWhy(t *testing.T) {
	cut := errors.New("cut off")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name   string
		plan   Plan
		ctx    context.Context
		reader io.Reader
		limit  int64   // of a MaxBytesReader, if not 0
		is     []error // the refusal; nil if the key has to say it
	}{
		{name: "broken", ctx: t.Context(), reader: iotest.ErrReader(cut), is: []error{ErrUnreadable, cut}},
		{name: "broken, needed", plan: Plan{Needed: true}, ctx: t.Context(), reader: iotest.ErrReader(cut), is: []error{ErrUnreadable, cut}},
		{name: "client gone", ctx: ended, reader: iotest.ErrReader(cut), is: []error{context.Canceled, cut}},
		{name: "too slow", ctx: ended, reader: iotest.ErrReader(os.ErrDeadlineExceeded), is: []error{ErrUnreadable, os.ErrDeadlineExceeded}},
		{name: "cut off by a limit", ctx: t.Context(), reader: strings.NewReader("xxxxx"), limit: 3, is: []error{ErrUnreadable, core.ErrTooLarge}},
		{name: "cut off by a limit, needed", plan: Plan{Needed: true}, ctx: t.Context(), reader: strings.NewReader("xxxxx"), limit: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.plan.Limit = 100
			r := httptest.NewRequest(http.MethodPost, "/", tc.reader)
			r.ContentLength = 5
			if tc.limit > 0 {
				r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, tc.limit)
			}
			_, err := tc.plan.Read(r)
			if err == nil {
				t.Fatal("the body was read")
			}
			refusal := tc.plan.Refusal(tc.ctx, "p", err)
			if (refusal == nil) != (tc.is == nil) {
				t.Fatalf("refused with %v", refusal)
			}
			if errors.Is(refusal, context.Canceled) != slices.Contains(tc.is, context.Canceled) {
				t.Errorf("%v is of the wrong kind", refusal)
			}
			for _, want := range tc.is {
				if !errors.Is(refusal, want) {
					t.Errorf("%v is not %v", refusal, want)
				}
			}
		})
	}
	if err := (Plan{}).Refusal(ended, "p", nil); err != nil {
		t.Errorf("a body that was read is refused: %v", err)
	}
}

// FuzzReadUpTo checks that nothing of a body is lost or added, whatever length
// was announced.
func FuzzReadUpTo(f *testing.F) {
	f.Add("hello", int64(5), int64(5))
	f.Add("hello", int64(2), int64(-1))
	f.Add("", int64(1), int64(1<<40))
	f.Fuzz(func(t *testing.T, text string, limit, announced int64) {
		if limit < 1 || limit > 1<<20 {
			return
		}
		got, err := readUpTo(strings.NewReader(text), limit, announced)
		if want := text[:min(int64(len(text)), limit+1)]; err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}
