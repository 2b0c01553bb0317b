package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// lesser is a driver in memory that says that it offers less.
type lesser struct {
	driver.Driver
	caps driver.Capabilities
}

func (l lesser) Capabilities() driver.Capabilities { return l.caps }

func TestPolicyThatTheDriverCannotKeepIsRefusedWithThoseThatCan(t *testing.T) {
	tests := []struct {
		name   string
		lessen func(*driver.Capabilities)
		policy core.Policy
		want   []string
	}{
		{"keeping", func(c *driver.Capabilities) { c.Keep = false }, core.Policy{MinHold: time.Second}, []string{"MinHold is set", "driver lesser does not offer that", "redis"}},
		{"mode", func(c *driver.Capabilities) { c.Modes = c.Modes[:1] }, core.Policy{Mode: core.Shared}, []string{"Mode is shared", "lesser", "redis"}},
		{"recall", func(c *driver.Capabilities) { c.Recall = false }, core.Policy{Linger: time.Second}, []string{"Linger is set", "tell a holder", "lesser", "redis"}},
		{"order", func(c *driver.Capabilities) { c.Strict = false }, core.Policy{Fairness: core.Strict}, []string{"Fairness is Strict", "lesser", "redis"}},
		{"any tokens", func(c *driver.Capabilities) { c.Tokens = core.NoTokens }, core.Policy{Tokens: core.ClockTokens}, []string{"Tokens is clock", "lesser", "redis"}},
		{"better tokens", func(*driver.Capabilities) {}, core.Policy{Tokens: core.DurableTokens}, []string{"Tokens is durable", "lesser"}},
		{"unknown tokens", func(*driver.Capabilities) {}, core.Policy{Tokens: core.DurableTokens + 1}, []string{"Tokens is 3", "core.DurableTokens"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := memlock.New()
			caps := store.Capabilities()
			caps.Name = "lesser"
			caps.Modes = append([]core.Mode(nil), caps.Modes...)
			tt.lessen(&caps)
			e, err := core.New(lesser{store, caps}, core.WithNamespace("test"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			tt.policy.Key = "k"
			_, err = e.Acquire(t.Context(), tt.policy)
			if !errors.Is(err, core.ErrPolicy) {
				t.Fatalf("the error is %v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestDriverIsNotToldToUseItself(t *testing.T) {
	_, err := open(t, memlock.New()).Acquire(t.Context(), core.Policy{Key: "k", Tokens: core.DurableTokens})
	mustBe(t, err, core.ErrPolicy)
	if _, others, _ := strings.Cut(err.Error(), ";"); strings.Contains(others, "drivers memory") || strings.Contains(others, "; driver memory") {
		t.Errorf("%v", err)
	}
}
