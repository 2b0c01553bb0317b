package cachetest

import (
	"errors"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

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
