package cachetest

import "math"

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
