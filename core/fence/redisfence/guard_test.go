package redisfence_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
)

func TestGuardAdmitsNoTokenBelowTheLargest(t *testing.T) {
	g := redisfence.New(start(t))
	for _, step := range []struct {
		token fence.Token
		want  error
	}{
		{token("a", 1<<53+1), nil},
		{token("a", 1<<53+1), nil},
		{token("a", 1<<53), fence.ErrStale}, // equal, as a Lua number
		{token("a", 1<<53+2), nil},
		{token("a", 9), fence.ErrStale},
		{token("b", 9), nil},
		{token("b", 10), nil},
		{token("b", 9), fence.ErrStale},
		{token("a", math.MaxInt64), nil},
		{token("a", math.MaxInt64-1), fence.ErrStale},
		{token("", 1), fence.ErrMalformed},
		{token("a", 0), fence.ErrMissing},
		{token("a", -1), fence.ErrMalformed},
	} {
		mustBe(t, g.Admit(t.Context(), step.token), step.want)
	}
}

func TestNumberIsKeptForEverUnlessAnExpiryIsGiven(t *testing.T) {
	rdb := start(t)
	left := func() time.Duration {
		t.Helper()
		d, err := rdb.PTTL(t.Context(), redisfence.Key("k")).Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	mustBe(t, redisfence.New(rdb).Admit(t.Context(), token("k", 5)), nil)
	if d := left(); d != -1 {
		t.Errorf("it ends in %v", d)
	}
	g := redisfence.New(rdb, redisfence.WithExpiry(time.Hour))
	for range 2 { // set, and then renewed by an equal token
		mustBe(t, g.Admit(t.Context(), token("k", 5)), nil)
		if d := left(); d < 59*time.Minute || d > time.Hour {
			t.Errorf("it ends in %v; want an hour", d)
		}
		if err := rdb.PExpire(t.Context(), redisfence.Key("k"), time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	mustBe(t, g.Admit(t.Context(), token("k", 4)), fence.ErrStale)
	if d := left(); d > time.Minute {
		t.Errorf("a stale token has made it last %v longer", d)
	}
}

func TestFlushedServerAdmitsWhateverComesFirst(t *testing.T) {
	rdb := start(t)
	g := redisfence.New(rdb)
	mustBe(t, g.Admit(t.Context(), token("k", 5)), nil)
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	mustBe(t, g.Admit(t.Context(), token("k", 4)), nil)
	mustBe(t, g.Admit(t.Context(), token("k", 3)), fence.ErrStale)
}

func TestGuardsKeepTheirNumbersWhereTheOptionSays(t *testing.T) {
	rdb := start(t)
	other := redisfence.New(rdb, redisfence.WithKey(func(k string) string { return "other:{" + k + "}" }))
	mustBe(t, redisfence.New(rdb).Admit(t.Context(), token("k", 5)), nil)
	mustBe(t, other.Admit(t.Context(), token("k", 4)), nil)
	mustBe(t, redisfence.New(rdb, nil, redisfence.WithKey(nil)).Admit(t.Context(), token("k", 4)), fence.ErrStale)
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Errorf("keys %q, %v; want one for each guard", keys, err)
	}
}

func TestGuardThatCannotAskRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: t.TempDir() + "/nobody", MaxRetries: -1})
	defer closeClient(t, rdb)
	err := fence.Check(t.Context(), redisfence.New(rdb), []fence.Token{token("k", 1)}, "k")
	mustBe(t, err, fence.ErrUndecided)
	if err != nil && strings.Contains(err.Error(), "nobody") {
		t.Errorf("the address is shown: %v", err)
	}
}

func TestExpiryThatIsNoneIsRefused(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "WithExpiry(0s)") {
			t.Errorf("got %v", err)
		}
	}()
	redisfence.New(nil, redisfence.WithExpiry(0))
}
