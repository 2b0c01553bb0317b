package observe

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/queue"
)

// example is a report with all that one can have.
func example(now time.Time) *report {
	d := delta{counts: [kinds]uint32{queue.EventTaken: 3, queue.EventLost: 1}, total: 5 * time.Second, longest: 2 * time.Second}
	return &report{
		identity: "pod-1", number: 7, dropped: 2, held: 3, waiting: 4,
		policies: []told{{"stock", d}},
		keys: []toldKey{{
			told: told{"stock:1", d}, policies: []string{"stock", "refund"},
			usage: usage{
				holding: 3, waiting: 4,
				holders: []Holder{{
					Policy: "stock", Mode: driver.Semaphore, Limit: 5, Token: 1 << 60, Since: now.Add(-time.Second), Until: now.Add(time.Second),
					Renewals: 2, HandOffs: 9, Contended: true, TraceID: [16]byte{1}, SpanID: [8]byte{2},
				}, {Idle: true, Since: now, Until: now}},
				waiters: []Waiter{{Policy: "refund", Mode: driver.Shared, Since: now.Add(-time.Minute), TraceID: [16]byte{3}, SpanID: [8]byte{4}}},
			},
			events: []Event{{At: now.Add(-time.Second), Kind: queue.EventLost, Policy: "stock", Token: 12, Waited: time.Second}},
		}},
	}
}

func TestReportIsReadAsItWasWritten(t *testing.T) {
	now := time.Now()
	sent := example(now)
	message, fit := sent.encode(Instance{1}, now)
	kind, from, rest, ok := opened(message)
	if !ok || kind != kindReport || from != (Instance{1}) || fit != 1 {
		t.Fatal(kind, from, ok, fit)
	}
	got, err := parseReport(from, rest, now)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.keys[0].holders { // known from who sent it
		h := &got.keys[0].holders[i]
		if h.Identity != "pod-1" || h.Instance != from.String() || h.Self {
			t.Errorf("%+v", h)
		}
		h.Identity, h.Instance = "", ""
	}
	w := &got.keys[0].waiters[0]
	w.Identity, w.Instance = "", ""
	got.policies = got.policies[:1] // others are only named
	if !reflect.DeepEqual(sent, got) {
		t.Errorf("sent %+v\nread %+v", sent, got)
	}
}

func TestReportHasAsManyKeysAsFit(t *testing.T) {
	now := time.Now()
	p := example(now)
	for i := range MaxKeys - 1 {
		k := p.keys[0]
		k.name = strings.Repeat("k", 200) + fmt.Sprint(i)
		p.keys = append(p.keys, k)
	}
	for i := range 10 * maxNames {
		p.policies = append(p.policies, told{strings.Repeat("p", 300) + fmt.Sprint(i), p.policies[0].delta})
	}
	p.policies = p.policies[:20]
	message, fit := p.encode(Instance{1}, now)
	if len(message) > driver.MaxGossip || fit == 0 || fit == len(p.keys) {
		t.Fatalf("%d bytes with %d keys", len(message), fit)
	}
	_, from, rest, _ := opened(message)
	got, err := parseReport(from, rest, now)
	if err != nil || len(got.keys) != fit || got.dropped != p.dropped+len(p.keys)-fit {
		t.Errorf("%v: %d keys of %d, %d dropped", err, len(got.keys), fit, got.dropped)
	}
}

func TestHostileMessagesAreRefused(t *testing.T) {
	now := time.Now()
	good, _ := example(now).encode(Instance{1}, now)
	for i := range good { // cut anywhere
		if _, from, rest, ok := opened(good[:i]); ok {
			if _, err := parseReport(from, rest, now); err == nil {
				t.Errorf("a report that is cut at %d is read", i)
			}
		}
	}
	huge := bytes.Repeat([]byte{0xff}, 9)
	for name, message := range map[string][]byte{
		"empty":           {},
		"another version": append([]byte("lw2"), good[3:]...),
		"too long":        append(bytes.Clone(good), make([]byte, driver.MaxGossip)...),
		"more after it":   append(bytes.Clone(good), 0),
		"huge lengths":    append(append(begin(kindReport, Instance{}).b, huge...), 1),
	} {
		if _, from, rest, ok := opened(message); ok {
			if _, err := parseReport(from, rest, now); err == nil {
				t.Errorf("%s: it is read", name)
			}
		}
	}
}

// FuzzReport reads what anybody may have sent: it must end, in bounded memory, and what is read
// must be what an engine could show.
func FuzzReport(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	good, _ := example(now).encode(Instance{1}, now)
	f.Add(good)
	f.Add(ask{Instance{1}, time.Minute, true}.encode())
	f.Add(begin(kindClosed, Instance{1}).b)
	f.Fuzz(func(t *testing.T, message []byte) {
		_, from, rest, ok := opened(message)
		if !ok {
			return
		}
		_, _ = parseAsk(rest)
		p, err := parseReport(from, rest, now)
		if err != nil {
			return
		}
		if len(p.keys) > MaxKeys || p.identity != "" && !driver.ValidIdentity(p.identity) {
			t.Errorf("%d keys, identity %q", len(p.keys), p.identity)
		}
		for _, k := range p.keys {
			if len(k.holders) > MaxCallers || len(k.waiters) > MaxCallers || len(k.events) > reportEvents || len(k.name) > maxKey {
				t.Errorf("%d holders, %d waiters, %d events", len(k.holders), len(k.waiters), len(k.events))
			}
			for _, h := range k.holders {
				if h.Since.After(now) || h.Until.Before(now) || h.Token < 0 {
					t.Errorf("%+v", h)
				}
			}
		}
	})
}
