package cachetest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

var valueChecks = []check{
	{"NothingIsThereAtFirst", nil, func(f *fixture) {
		f.mustHaveNone(f.key)
		if e := f.claim(f.key, 1, long); e.Value != nil {
			f.t.Errorf("claim returns %.20q; want nothing", e.Value)
		}
		f.mustHaveNone(f.key)
	}},
	{"WhatIsPutIsRead", nil, func(f *fixture) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for i, v := range []string{"v", "", "\x00", "1", string(all), strings.Repeat("long ", 200_000), "\r\n$-1\r\n"} {
			token := int64(i + 1)
			f.load(f.key, token, v, long)
			f.mustHave(f.key, v)
			if e := f.claim(f.key, token, long); e.Value == nil || string(e.Value) != v {
				f.t.Errorf("claim returns %.20q; want %.20q", e.Value, v)
			}
		}
	}},
	{"NilIsStoredAsAnEmptyValue", nil, func(f *fixture) {
		f.claim(f.key, 1, long)
		if stored, err := f.store.Put(f.t.Context(), f.key, 1, nil, long); !stored || err != nil {
			f.t.Fatalf("put of nil: %t, %v", stored, err)
		}
		f.mustHave(f.key, "")
	}},
	{"ValuesBelongToTheCaller", nil, func(f *fixture) {
		mine := []byte("value")
		f.claim(f.key, 1, long)
		if stored, err := f.store.Put(f.t.Context(), f.key, 1, mine, long); !stored || err != nil {
			f.t.Fatalf("put: %t, %v", stored, err)
		}
		clear(mine)
		for _, e := range []cache.Entry{f.get(f.key), f.get(f.key), f.claim(f.key, 1, long)} {
			clear(e.Value)
			_ = append(e.Value, "more"...)
		}
		f.mustHave(f.key, "value")
	}},
	{"KeysAreApart", nil, func(f *fixture) {
		keys := []string{"", "a", "A", "a ", "a\x00", "a\x00b", "ä", "a\u0308", "\xff", "{a}b", "{a}c", "a:b", "a*", "a\r\n", strings.Repeat("a", 2000)}
		for i := range keys {
			keys[i] = f.key + keys[i]
		}
		for i, k := range keys {
			f.load(k, int64(i+1), k, long)
		}
		for _, k := range keys {
			f.mustHave(k, k)
		}
		f.invalidate(keys[1])
		for i, k := range keys {
			if i != 1 {
				f.mustHave(k, k)
			}
		}
	}},
	{"LeftIsWhatIsLeft", nil, func(f *fixture) {
		before := time.Now()
		f.load(f.key, 1, "v", long)
		for _, read := range []func() cache.Entry{
			func() cache.Entry { return f.get(f.key) },
			func() cache.Entry { return f.claim(f.key, 1, 2*long) },
			func() cache.Entry { return f.get(f.key) },
			func() cache.Entry { return f.claim(f.key, 2, time.Minute) },
			func() cache.Entry { return f.get(f.key) },
		} {
			e := read()
			if took := time.Since(before); e.Left > long || e.Left < long-2*took-2*time.Millisecond {
				f.t.Errorf("%v left of %v after %v", e.Left, long, took)
			}
		}
	}},
	{"WhatCannotBeMeantIsRefused", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		for _, bad := range []struct {
			token int64
			ttl   time.Duration
		}{{0, long}, {-1, long}, {math.MinInt64, long}, {9, 0}, {9, -1}, {9, cache.MinTTL - 1}, {9, cache.MaxTTL + 1}, {9, math.MaxInt64}, {5, 0}, {5, -long}} {
			if _, err := f.store.Claim(f.t.Context(), f.key, bad.token, bad.ttl); err == nil {
				f.t.Errorf("claim of %d for %v is no error", bad.token, bad.ttl)
			}
			if stored, err := f.store.Put(f.t.Context(), f.key, bad.token, []byte("x"), bad.ttl); stored || err == nil {
				f.t.Errorf("put of %d for %v: %t, %v; want an error", bad.token, bad.ttl, stored, err)
			}
		}
		f.mustHave(f.key, "v")
		f.mustNotPut(f.key, 9, "x")
		for i, ttl := range []time.Duration{cache.MinTTL, cache.MaxTTL} {
			f.claim(f.key, int64(10+i), ttl)
			f.put(f.key, int64(10+i), "w", ttl)
		}
		f.mustHave(f.key, "w")
	}},
	{"PeersShareTheEntries", needs(aPeer), func(f *fixture) {
		p := f.peer()
		f.load(f.key, 5, "v", long)
		p.mustHave(f.key, "v")
		p.claim(f.key, 6, long)
		f.mustBeSuperseded(f.key, 5)
		f.mustNotPut(f.key, 5, "late")
		p.mustPut(f.key, 6, "w", long)
		f.settle()
		f.mustHave(f.key, "w")
		f.invalidate(f.key)
		f.mustHaveNone(f.key)
		p.mustNotPut(f.key, 6, "late")
		f.settle()
		p.mustHaveNone(f.key)
	}},
}

func needs(n ...need) []need { return slices.Clip(n) }

var lifetimeChecks = []check{
	{"ValueEnds", nil, func(f *fixture) {
		f.load(f.key, 5, "v", short)
		f.get(f.key) // a copy must not outlive it
		time.Sleep(short)
		f.mustHaveNone(f.key)
		f.peer().mustHaveNone(f.key)
		if e := f.claim(f.key, 6, long); e.Value != nil {
			f.t.Errorf("claim returns %.20q, which has ended", e.Value)
		}
		f.mustPut(f.key, 6, "w", long)
		f.mustHave(f.key, "w")
	}},
	{"ClaimDoesNotProlongAValue", nil, func(f *fixture) {
		f.load(f.key, 5, "v", short)
		f.claim(f.key, 6, long)
		f.get(f.key)
		time.Sleep(short)
		f.mustHaveNone(f.key)
		f.mustPut(f.key, 6, "w", long)
		f.mustHave(f.key, "w")
	}},
	{"ClaimDoesNotShortenAValue", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.claim(f.key, 6, short)
		time.Sleep(2 * short)
		f.mustHave(f.key, "v")
	}},
	{"EndOfAClaimLeavesItsValue", nil, func(f *fixture) {
		for token, ttl := int64(5), short; ; token, ttl = token+1, 2*ttl {
			began := time.Now()
			f.claim(f.key, token, ttl)
			if f.put(f.key, token, "v", long) {
				time.Sleep(2 * ttl)
				break
			}
			if time.Since(began) < ttl {
				f.t.Fatal("put is refused")
			}
			// The machine was too slow to put within the claim.
		}
		f.mustHave(f.key, "v")
	}},
	{"NewValueMayEndSooner", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.load(f.key, 6, "w", short)
		f.get(f.key)
		time.Sleep(short)
		f.mustHaveNone(f.key)
	}},
	{"RepeatedPutBringsNoEndedValueBack", nil, func(f *fixture) {
		f.load(f.key, 5, "v", short)
		time.Sleep(short)
		f.put(f.key, 5, "v", long)
		f.mustHaveNone(f.key)
	}},
	{"ClaimOutlivesItsValue", nil, func(f *fixture) {
		f.load(f.key, 5, "v", short)
		time.Sleep(short)
		f.mustBeSuperseded(f.key, 4)
		f.mustNotPut(f.key, 4, "late")
	}},
	{"ClaimIsNotShortened", nil, func(f *fixture) {
		f.claim(f.key, 5, long)
		f.claim(f.key, 5, cache.MinTTL)
		time.Sleep(short)
		f.mustBeSuperseded(f.key, 4)
		f.mustPut(f.key, 5, "v", long)
	}},
	{"LargerClaimOutlivesASmallerOne", nil, func(f *fixture) {
		f.claim(f.key, 5, short)
		f.claim(f.key, 6, long)
		time.Sleep(2 * short)
		f.mustBeSuperseded(f.key, 5)
		f.mustPut(f.key, 6, "v", long)
	}},
	{"EndedClaimLetsSmallerTokensIn", nil, func(f *fixture) {
		f.claim(f.key, 6, short)
		f.invalidate(f.key)
		for began := time.Now(); ; time.Sleep(short / 4) {
			_, err := f.store.Claim(f.t.Context(), f.key, 5, long)
			if err == nil {
				break
			}
			if !errors.Is(err, cache.ErrSuperseded) || time.Since(began) > time.Minute {
				f.t.Fatalf("claim of 5, %v after that of 6 for %v: %v", time.Since(began), short, err)
			}
		}
		f.mustPut(f.key, 5, "v", long)
		f.mustHave(f.key, "v")
	}},
}

var claimChecks = []check{
	{"PutNeedsAClaim", nil, func(f *fixture) {
		f.mustNotPut(f.key, 1, "v")
		f.mustHaveNone(f.key)
	}},
	{"PutNeedsItsOwnClaim", nil, func(f *fixture) {
		f.claim(f.key, 5, long)
		f.mustNotPut(f.key, 4, "smaller")
		f.mustNotPut(f.key, 6, "larger")
		f.mustHaveNone(f.key)
		f.mustPut(f.key, 5, "v", long)
		f.mustNotPut(f.key, 4, "smaller")
		f.mustNotPut(f.key, 6, "larger")
		f.mustHave(f.key, "v")
	}},
	{"LargerTokenTakesTheClaim", nil, func(f *fixture) {
		f.claim(f.key, 5, long)
		f.peer().claim(f.key, 6, long)
		f.mustNotPut(f.key, 5, "late")
		f.mustHaveNone(f.key)
		f.peer().mustPut(f.key, 6, "v", long)
		f.mustNotPut(f.key, 5, "late")
		f.settle()
		f.mustHave(f.key, "v")
	}},
	{"SmallerTokenIsSuperseded", nil, func(f *fixture) {
		f.claim(f.key, 6, long)
		f.mustBeSuperseded(f.key, 5)
		f.mustPut(f.key, 6, "v", long)
		f.mustBeSuperseded(f.key, 5)
		f.mustNotPut(f.key, 5, "late")
		f.mustHave(f.key, "v")
	}},
	{"TokensAreComparedExactly", nil, func(f *fixture) {
		last := int64(0)
		for _, token := range []int64{1, 9, 10, 99, 1 << 31, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1<<60 + 1, 1<<60 + 2, math.MaxInt64 - 1, math.MaxInt64} {
			f.claim(f.key, token, long)
			if last > 0 {
				f.mustBeSuperseded(f.key, last)
				f.mustNotPut(f.key, last, "late")
			}
			f.mustPut(f.key, token, "v", long)
			last = token
		}
	}},
	{"ClaimMayBeRepeated", nil, func(f *fixture) {
		f.claim(f.key, 5, long)
		f.claim(f.key, 5, long)
		f.mustPut(f.key, 5, "v", long)
		f.mustHave(f.key, "v")
	}},
	{"FirstPutOfAClaimCounts", nil, func(f *fixture) {
		f.claim(f.key, 5, long)
		f.mustPut(f.key, 5, "v", long)
		f.mustPut(f.key, 5, "again", 2*long)
		f.mustHave(f.key, "v")
		if e := f.get(f.key); e.Left > long {
			f.t.Errorf("%v left; want no more than the %v of the first", e.Left, long)
		}
	}},
	{"AnotherClaimAllowsAnotherPut", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.load(f.key, 5, "w", long)
		f.mustHave(f.key, "w")
		f.load(f.key, 6, "x", long)
		f.mustHave(f.key, "x")
	}},
	{"ValueStaysWhileAnotherIsLoaded", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		if e := f.claim(f.key, 6, long); string(e.Value) != "v" {
			f.t.Errorf("claim returns %.20q; want what is there", e.Value)
		}
		f.mustHave(f.key, "v")
		f.mustPut(f.key, 6, "a longer one", long)
		f.mustHave(f.key, "a longer one")
	}},
}

var invalidationChecks = []check{
	{"InvalidatedValueIsGone", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.invalidate(f.key)
		f.mustHaveNone(f.key)
		f.load(f.key, 6, "w", long)
		f.mustHave(f.key, "w")
	}},
	{"InvalidatedLoadIsNotStored", nil, func(f *fixture) {
		f.claim(f.key, 5, long)
		f.peer().invalidate(f.key)
		f.mustNotPut(f.key, 5, "old")
		f.mustHaveNone(f.key)
	}},
	{"InvalidatedReloadIsNotStored", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.claim(f.key, 6, long)
		f.peer().invalidate(f.key)
		f.mustNotPut(f.key, 6, "old")
		f.settle()
		f.mustHaveNone(f.key)
	}},
	{"LateCopyOfAPutIsNotStored", nil, func(f *fixture) {
		f.load(f.key, 5, "v", long)
		f.invalidate(f.key)
		f.mustNotPut(f.key, 5, "v")
		f.claim(f.key, 6, long)
		f.mustNotPut(f.key, 5, "v")
		f.mustHaveNone(f.key)
	}},
	{"LateCopyOfAClaimIsSuperseded", nil, func(f *fixture) {
		f.claim(f.key, 5, long)
		f.invalidate(f.key)
		f.mustBeSuperseded(f.key, 5)
		f.mustBeSuperseded(f.key, 4)
		f.mustNotPut(f.key, 5, "old")
		f.claim(f.key, 6, long)
		f.mustPut(f.key, 6, "v", long)
		f.invalidate(f.key)
		f.invalidate(f.key)
		f.mustBeSuperseded(f.key, 5)
		f.mustBeSuperseded(f.key, 6)
		f.claim(f.key, 7, long)
		f.mustPut(f.key, 7, "v", long)
		f.mustHave(f.key, "v")
	}},
	{"NothingMayBeInvalidated", nil, func(f *fixture) {
		f.invalidate(f.key)
		f.invalidate(f.key)
		f.load(f.key, 1, "v", long)
		f.mustHave(f.key, "v")
	}},
}
