package routetest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

// Settings are the constructors of a package, which return an H, and its options, which are of
// type O.
type Settings[O, H any] struct {
	New      func(*core.Engine, core.Policy, ...O) (H, error)
	NewFence func(fence.Guard, string, ...O) (H, error)

	// Lock and Fence panic with the error of New and NewFence.
	Lock  func(*core.Engine, core.Policy, ...O) H
	Fence func(fence.Guard, string, ...O) H

	Value        func(name string) O // WithValue with a function that returns a text
	NilValue     O                   // WithValue("v", nil)
	BodyLimit    func(int64) O
	Filter       O // WithFilter(nil)
	ErrorHandler O // WithErrorHandler(nil)
	Unbuffered   O // WithoutBodyBuffer()
}

// Test tests that what cannot work is refused when it is registered.
func (s Settings[O, H]) Test(t *testing.T) {
	t.Run("BadPoliciesAndOptions", s.badPoliciesAndOptions)
	t.Run("FenceThatCannotWork", s.badFences)
}

// made reports whether there is a lock or a fence: an H is a function.
func made[H any](h H) bool { return !reflect.ValueOf(h).IsNil() }

func (s Settings[O, H]) badPoliciesAndOptions(t *testing.T) {
	e, _ := Open(t)
	var none O
	for _, tc := range []struct {
		name    string
		engine  *core.Engine
		key     string
		options []O
		says    string // the error; "" if there is none
	}{
		{name: "good", engine: e, key: "{path.x}"},
		{name: "good with options", engine: e, key: "{v}:{body.x}", options: []O{none, s.Value("v"), s.BodyLimit(10), s.Filter, s.ErrorHandler}},
		{name: "dotted value", engine: e, key: "{user.id}", options: []O{s.Value("user.id")}},
		{name: "nil engine", key: "k", says: "core.New"},
		{name: "no key", engine: e, says: "Key"},
		{name: "malformed key", engine: e, key: "{path.x", says: "never closed"},
		{name: "unknown placeholder", engine: e, key: "{x}", says: "WithValue"},
		{name: "unknown prefix", engine: e, key: "{cookie.x}", says: "unknown"},
		{name: "prefix alone", engine: e, key: "{path}", says: "names no value"},
		{name: "prefix and dot", engine: e, key: "{query.}", says: "names no value"},
		{name: "empty name in body", engine: e, key: "{body.a..b}", says: "empty"},
		{name: "client's something", engine: e, key: "{client.port}", says: "{client.ip}"},
		{name: "impossible header", engine: e, key: "{header.X(Y)}", says: "name of a header"},
		{name: "header that net/http moves", engine: e, key: "{header.host}", says: "WithValue"},
		{name: "value unused", engine: e, key: "{path.x}", options: []O{s.Value("v")}, says: "{v}"},
		{name: "value twice", engine: e, key: "{v}", options: []O{s.Value("v"), s.Value("v")}, says: "twice"},
		{name: "value nil", engine: e, key: "{v}", options: []O{s.NilValue}, says: "nil"},
		{name: "value without name", engine: e, key: "k", options: []O{s.Value("")}, says: "empty"},
		{name: "value with braces", engine: e, key: "{v}", options: []O{s.Value("{v}")}, says: "braces"},
		{name: "value that shadows", engine: e, key: "{path.x}", options: []O{s.Value("path.x")}, says: "built in"},
		{name: "value that shadows a prefix", engine: e, key: "{body}", options: []O{s.Value("body")}, says: "built in"},
		{name: "filter twice", engine: e, key: "k", options: []O{s.Filter, s.Filter}, says: "twice"},
		{name: "error handler twice", engine: e, key: "k", options: []O{s.ErrorHandler, s.ErrorHandler}, says: "twice"},
		{name: "body limit twice", engine: e, key: "k", options: []O{s.BodyLimit(1), s.BodyLimit(1)}, says: "twice"},
		{name: "body limit of nothing", engine: e, key: "k", options: []O{s.BodyLimit(0)}, says: "WithBodyLimit(0)"},
		{name: "buffering off twice", engine: e, key: "k", options: []O{s.Unbuffered, s.Unbuffered}, says: "twice"},
		{name: "buffering off with a limit", engine: e, key: "k", options: []O{s.Unbuffered, s.BodyLimit(1)}, says: "no effect"},
		{name: "buffering off with a body", engine: e, key: "{body.x}", options: []O{s.Unbuffered}, says: "{body.…}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lock, err := s.New(tc.engine, core.Policy{Key: tc.key}, tc.options...)
			if tc.says == "" {
				if !made(lock) || err != nil {
					t.Fatalf("got %v", err)
				}
				return
			}
			if made(lock) || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got %v; want an error about %q", err, tc.says)
			}
			defer func() {
				if p, ok := recover().(error); !ok || p.Error() != err.Error() {
					t.Errorf("Lock panics with %v; want %v", p, err)
				}
			}()
			s.Lock(tc.engine, core.Policy{Key: tc.key}, tc.options...)
		})
	}
}

func (s Settings[O, H]) badFences(t *testing.T) {
	for _, tc := range []struct {
		guard fence.Guard
		key   string
		o     []O
		says  string
	}{
		{nil, "k", nil, "guard is nil"},
		{&fence.Memory{}, "", nil, "empty"},
		{&fence.Memory{}, "{path.sku", nil, "never closed"},
		{&fence.Memory{}, "{cookie.x}", nil, "unknown"},
		{&fence.Memory{}, "k", []O{s.Unbuffered}, "no effect"},
		{&fence.Memory{}, "k", []O{s.BodyLimit(1)}, "no effect"},
		{&fence.Memory{}, "k", []O{s.BodyLimit(0)}, "WithBodyLimit(0)"},
	} {
		f, err := s.NewFence(tc.guard, tc.key, tc.o...)
		if err == nil || made(f) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q: got %v; want an error about %q", tc.key, err, tc.says)
		}
		func() {
			defer func() {
				if got := recover(); fmt.Sprint(got) != fmt.Sprint(err) {
					t.Errorf("Fence panics with %v", got)
				}
			}()
			s.Fence(tc.guard, tc.key, tc.o...)
		}()
	}
}
