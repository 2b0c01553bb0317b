package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// listed returns what a list says of each key, and its last error.
func listed(t *testing.T, e *core.Engine, prefix string) (map[string]core.KeyState, error) {
	t.Helper()
	all := make(map[string]core.KeyState)
	var last error
	for k, err := range e.Keys(t.Context(), prefix) {
		if last = err; err != nil && k.Key == "" {
			continue
		}
		if _, twice := all[k.Key]; twice {
			t.Errorf("%q comes twice", k.Key)
		}
		all[k.Key] = k
	}
	return all, last
}

func TestKeysAreThoseOfTheNamespaceThatAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d, core.WithNamespace("shop"))
		other := open(t, d, core.WithNamespace("shop2"))
		for i := range 700 { // more than one page
			mustAcquire(t, e, core.Policy{Key: fmt.Sprintf("stock:%d", i)})
		}
		mustAcquire(t, e, core.Policy{Key: "refund:7"})
		mustAcquire(t, other, core.Policy{Key: "stock:a"})
		given := mustAcquire(t, e, core.Policy{Key: "stock:given"})
		mustBe(t, given.Release(t.Context()), nil)
		all, err := listed(t, e, "")
		mustBe(t, err, nil)
		if len(all) != 701 || all["stock:a"].Held || !all["refund:7"].Held || len(all["refund:7"].Holders) != 1 {
			t.Errorf("%d keys, %q among them", len(all), slices.Sorted(maps.Keys(all))[:3])
		}
		all, err = listed(t, e, "refund:")
		mustBe(t, err, nil)
		if len(all) != 1 || all["refund:7"].Key != "refund:7" {
			t.Errorf("with a prefix: %v", all)
		}
		for _, err := range e.Keys(t.Context(), "") {
			mustBe(t, err, nil)
			break // which asks no further
		}
	})
}

func TestListThatFailsSaysSoLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d, core.WithStoreTimeout(time.Second))
		mustAcquire(t, e, write.Policy)
		d.Stall()
		_, err := listed(t, e, "")
		mustBe(t, err, core.ErrUnavailable)
		d.Heal()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range e.Keys(ctx, "") {
			mustBe(t, err, context.Canceled)
		}
		_, err = listed(t, open(t, listless{d}), "")
		mustBe(t, err, core.ErrPolicy)
		_, err = listed(t, nil, "")
		mustBe(t, err, core.ErrPolicy)
	})
}

// listless is a driver that cannot list its keys.
type listless struct{ driver.Driver }

func (d listless) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return struct{ driver.Session }{s}, err
}

func TestKeyThatCannotBeReadDoesNotHideTheOthers(t *testing.T) {
	d := memlock.New()
	e := open(t, spoilt{d})
	mustAcquire(t, e, core.Policy{Key: "a"})
	mustAcquire(t, e, core.Policy{Key: "spoilt"})
	mustAcquire(t, e, core.Policy{Key: "z"})
	bad := 0
	all := make(map[string]bool)
	for k, err := range e.Keys(t.Context(), "") {
		all[k.Key] = true
		if err != nil {
			bad++
			mustBe(t, err, core.ErrUnavailable)
			if k.Key != "spoilt" {
				t.Errorf("%q: %v", k.Key, err)
			}
		}
	}
	if bad != 1 || len(all) != 3 {
		t.Errorf("%d errors, keys %v", bad, all)
	}
}

// spoilt is a driver that refuses one key: somebody has overwritten it.
type spoilt struct{ driver.Driver }

func (d spoilt) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return spoiltSession{s.(driver.Lister)}, err
}

type spoiltSession struct{ driver.Lister }

func (s spoiltSession) Inspect(ctx context.Context, key string) (driver.State, error) {
	if strings.HasSuffix(key, "/spoilt") {
		return driver.State{}, &driver.PermanentError{Err: errors.New("a string")}
	}
	return s.Lister.Inspect(ctx, key)
}
