package suites

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// nothing is a driver that says that it offers nothing but exclusive leases.
type nothing struct{ driver.Driver }

func (nothing) Capabilities() driver.Capabilities {
	return driver.Capabilities{Name: "nothing", Modes: []driver.Mode{driver.Exclusive}}
}

// Offers holds what core's errors say of the module's drivers to what these offer. It asks a
// driver that offers nothing for whatever d may offer, and fails t unless the errors name d where it does and only there.
func Offers(t *testing.T, d driver.Driver) {
	t.Helper()
	caps := d.Capabilities()
	e, err := core.New(nothing{memlock.New()}, core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for _, tt := range []struct {
		policy core.Policy
		offers bool
	}{
		{core.Policy{MinHold: time.Second}, caps.Keep},
		{core.Policy{Mode: core.Shared}, slices.Contains(caps.Modes, driver.Shared)},
		{core.Policy{Mode: core.Semaphore, Limit: 2}, slices.Contains(caps.Modes, driver.Semaphore)},
		{core.Policy{Linger: time.Second}, caps.Recall},
		{core.Policy{Fairness: core.Strict}, caps.Strict},
		{core.Policy{Tokens: core.ClockTokens}, caps.Tokens >= driver.ClockTokens},
		{core.Policy{Tokens: core.DurableTokens}, caps.Tokens >= driver.DurableTokens},
	} {
		tt.policy.Key = "k"
		_, err := e.Acquire(context.Background(), tt.policy)
		if err == nil {
			t.Fatalf("%+v is not refused", tt.policy)
		}
		named(t, caps.Name, tt.offers, err)
	}
	_, err = core.New(nothing{memlock.New()}, core.WithIdentity("orders-7f9c"))
	if err == nil {
		t.Fatal("an identity is not refused")
	}
	named(t, caps.Name, caps.Identity, err)
}

// named fails t unless the error names the driver where it offers what was asked for, and only
// there.
func named(t *testing.T, name string, offers bool, err error) {
	t.Helper()
	_, others, _ := strings.Cut(err.Error(), ";")
	words := strings.FieldsFunc(others, func(r rune) bool { return r == ' ' || r == ',' || r == ';' })
	if slices.Contains(words, name) != offers {
		t.Errorf("driver %s offers it: %v; the error is %q", name, offers, err)
	}
}
