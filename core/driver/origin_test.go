package driver_test

import (
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

func TestIdentityNeedsNoEscapingAnywhere(t *testing.T) {
	for identity, valid := range map[string]bool{
		"orders-7f9c": true, "vm:4711": true, "shop/orders_7.f9c@host+blue=1,#2~%3": true, strings.Repeat("a", driver.MaxIdentity): true,
		"": false, strings.Repeat("a", driver.MaxIdentity+1): false, "a b": false, "a\n": false, "a\x00": false, "a\x7f": false,
		"<b>": false, "a&b": false, `a"b`: false, "a'b": false, "a`b": false, `a\b`: false, "a*b": false, "ä": false, "\xff": false,
	} {
		if got := driver.ValidIdentity(identity); got != valid {
			t.Errorf("ValidIdentity(%q) is %v", identity, got)
		}
	}
}

func TestOriginsAreTheSameIfTheySayTheSame(t *testing.T) {
	trace := func(id byte) *driver.Trace { return &driver.Trace{TraceID: [16]byte{id}, SpanID: [8]byte{1}} }
	all := []driver.Origin{{}, {Identity: "a"}, {Identity: "b"}, {Trace: trace(1)}, {Identity: "a", Trace: trace(1)}, {Identity: "a", Trace: trace(2)}}
	for i, a := range all {
		for j, b := range all {
			if b.Trace != nil {
				read := *b.Trace
				b.Trace = &read
			}
			if got := a.Same(b); got != (i == j) {
				t.Errorf("%+v and %+v: %v", a, b, got)
			}
		}
	}
}

func TestTraceIsReadWholeOrNotAtAll(t *testing.T) {
	want := driver.Trace{TraceID: [16]byte{0, 1, 0xff}, SpanID: [8]byte{0xff, ':'}, Flags: 3}
	text := string(want.Append([]byte("before")))[len("before"):]
	if got := driver.ParseTrace(text); len(text) != driver.TraceSize || got == nil || *got != want {
		t.Errorf("%q is read as %+v, want %+v", text, got, want)
	}
	noSpan := driver.Trace{TraceID: [16]byte{1}}
	noTrace := driver.Trace{SpanID: [8]byte{1}}
	for _, text := range []string{"", text[1:], text + "x", strings.Repeat("\x00", driver.TraceSize), string(noSpan.Append(nil)), string(noTrace.Append(nil))} {
		if got := driver.ParseTrace(text); got != nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
