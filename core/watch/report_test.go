package watch

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/observe"
)

// written is a report with all that one can have, and read what is read of it.
func written(now time.Time) (written *observe.Report[manager.Key], read *report) {
	d := observe.Delta{Counts: [observe.Kinds]uint32{manager.EventTaken: 3, manager.EventLost: 1}, Total: 5 * time.Second, Longest: 2 * time.Second}
	told := observe.Told{Name: "stock:1", Delta: d}
	settings := observe.Settings{Mode: driver.Semaphore, Limit: 5, Wait: core.Forever, TTL: time.Minute, MaxHold: time.Second, Strict: true, Overridden: observe.FieldsOf(true, false, false, false, true)}
	policies, names := []observe.Told{{Name: "stock", Delta: d, Settings: settings}}, []string{"stock", "refund"}
	events := []observe.Event{{At: now.Add(-time.Second), Kind: manager.EventLost, Policy: "stock", Token: 12, Waited: time.Second}}
	instance := observe.Instance{1}.String()
	written = &observe.Report[manager.Key]{
		Identity: "pod-1", Started: now.Add(-time.Hour), Version: "v1.2.3", Number: 7, Dropped: 2, Held: 3, Waiting: 4, Policies: policies,
		Keys: []observe.ToldKey[manager.Key]{{Told: told, Policies: names, Events: events, Use: manager.Key{
			Holding: 3, Waiting: 4,
			Holders: []manager.Holding{{
				Terms: &manager.Terms{Name: "stock"}, Mode: driver.Semaphore, Limit: 5, Token: 1 << 60, Since: now.Add(-time.Second), Deadline: now.Add(time.Second),
				Renewals: 2, HandOffs: 9, Contended: true, Trace: &driver.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}},
			}, {Since: now, Deadline: now}},
			Waiters: []manager.Waiting{{
				Terms: &manager.Terms{Name: "refund", Mode: driver.Shared, Standby: true, Wait: core.Forever}, Since: now.Add(-time.Minute), Trace: &driver.Trace{TraceID: [16]byte{3}, SpanID: [8]byte{4}},
			}},
		}}},
	}
	read = &report{
		Identity: "pod-1", Started: now.Add(-time.Hour), Version: "v1.2.3", Number: 7, Dropped: 2, Held: 3, Waiting: 4, Policies: policies,
		Keys: []observe.ToldKey[usage]{{Told: told, Policies: names, Events: events, Use: usage{
			holding: 3, waiting: 4,
			holders: []Holder{{
				Identity: "pod-1", Instance: instance, Policy: "stock", Mode: driver.Semaphore, Limit: 5, Token: 1 << 60, Since: now.Add(-time.Second), Until: now.Add(time.Second),
				Renewals: 2, HandOffs: 9, Contended: true, TraceID: [16]byte{1}, SpanID: [8]byte{2},
			}, {Identity: "pod-1", Instance: instance, Idle: true, Since: now, Until: now}},
			waiters: []Waiter{{Identity: "pod-1", Instance: instance, Policy: "refund", Mode: driver.Shared, Standby: true, Wait: core.Forever, Since: now.Add(-time.Minute), TraceID: [16]byte{3}, SpanID: [8]byte{4}}},
		}}},
	}
	return written, read
}

// example is a report of another engine.
func example(now time.Time) *report {
	_, p := written(now)
	return p
}

// message is the report as it is sent.
func message(now time.Time) []byte {
	p, _ := written(now)
	m, _ := observe.Encode(p, observe.Instance{1}, now)
	return m
}

func TestReportIsReadAsItWasWritten(t *testing.T) {
	now := time.Now()
	sent, want := written(now)
	m, fit := observe.Encode(sent, observe.Instance{1}, now)
	kind, from, rest, ok := observe.Open(m)
	if !ok || kind != observe.KindReport || from != (observe.Instance{1}) || fit != 1 {
		t.Fatal(kind, from, ok, fit)
	}
	got, err := parseReport(from, rest, now)
	if err != nil {
		t.Fatal(err)
	}
	got.Policies = got.Policies[:1] // others are only named
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sent %+v\nread %+v", want, got)
	}
}

func TestReportHasAsManyKeysAsFit(t *testing.T) {
	now := time.Now()
	p, _ := written(now)
	for i := range MaxKeys - 1 {
		k := p.Keys[0]
		k.Name = strings.Repeat("k", 200) + fmt.Sprint(i)
		p.Keys = append(p.Keys, k)
	}
	for i := range 10 * observe.MaxNames {
		p.Policies = append(p.Policies, observe.Told{Name: strings.Repeat("p", 300) + fmt.Sprint(i), Delta: p.Policies[0].Delta})
	}
	p.Policies = p.Policies[:20]
	m, fit := observe.Encode(p, observe.Instance{1}, now)
	if len(m) > driver.MaxGossip || fit == 0 || fit == len(p.Keys) {
		t.Fatalf("%d bytes with %d keys", len(m), fit)
	}
	_, from, rest, _ := observe.Open(m)
	got, err := parseReport(from, rest, now)
	if err != nil || len(got.Keys) != fit || got.Dropped != p.Dropped+len(p.Keys)-fit {
		t.Errorf("%v: %d keys of %d, %d dropped", err, len(got.Keys), fit, got.Dropped)
	}
}

func TestHostileMessagesAreRefused(t *testing.T) {
	now := time.Now()
	good := message(now)
	for i := range good { // cut anywhere
		if _, from, rest, ok := observe.Open(good[:i]); ok {
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
		"huge lengths":    append(append(observe.Message(observe.KindReport, observe.Instance{}), huge...), 1),
	} {
		if _, from, rest, ok := observe.Open(message); ok {
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
	good := message(now)
	f.Add(good)
	f.Add(observe.Message(observe.KindClosed, observe.Instance{1}))
	f.Fuzz(func(t *testing.T, message []byte) {
		_, from, rest, ok := observe.Open(message)
		if !ok {
			return
		}
		p, err := parseReport(from, rest, now)
		if err != nil {
			return
		}
		if len(p.Keys) > MaxKeys || p.Identity != "" && !driver.ValidIdentity(p.Identity) {
			t.Errorf("%d keys, identity %q", len(p.Keys), p.Identity)
		}
		for _, k := range p.Keys {
			if len(k.Use.holders) > MaxCallers || len(k.Use.waiters) > MaxCallers || len(k.Events) > observe.ReportEvents || len(k.Name) > maxKey {
				t.Errorf("%d holders, %d waiters, %d events", len(k.Use.holders), len(k.Use.waiters), len(k.Events))
			}
			for _, h := range k.Use.holders {
				if h.Since.After(now) || h.Until.Before(now) || h.Token < 0 {
					t.Errorf("%+v", h)
				}
			}
		}
	})
}
