package cachetest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/cache/cachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fault is a mistake of stores, switched on in the reference.
type fault string

// The faults.
const (
	badInputIsTaken             fault = "bad input is taken"
	claimDropsTheValue          fault = "claim drops the value"
	claimHidesTheValue          fault = "claim hides the value"
	claimIsShortened            fault = "claim is shortened"
	claimNeverEnds              fault = "claim never ends"
	claimProlongsTheValue       fault = "claim prolongs the value"
	claimRevives                fault = "claim revives an ended value"
	claimShortensTheValue       fault = "claim shortens the value"
	claimsSurviveTheirValues    fault = "claims survive their values"
	emptyIsNothing              fault = "empty is nothing"
	entryEndsWithTheClaim       fault = "entry ends with the claim"
	invalidationForgetsTheClaim fault = "invalidation forgets the claim"
	invalidationLeavesTheClaim  fault = "invalidation leaves the claim"
	invalidationLeavesTheValue  fault = "invalidation leaves the value"
	invalidationNeedsAnEntry    fault = "invalidation needs an entry"
	keysFoldCase                fault = "keys fold case"
	leftIsTheSameForAll         fault = "left is the same for all"
	nothingIsEmpty              fault = "nothing is empty"
	peersAreApart               fault = "peers are apart"
	putChecksThenStores         fault = "put checks, then stores"
	putEndsTheClaim             fault = "put ends the claim"
	putIgnoresTheToken          fault = "put ignores the token"
	putKeepsTheCallersSlice     fault = "put keeps the caller's slice"
	putNeedsNoClaim             fault = "put needs no claim"
	putTakesTheClaim            fault = "put takes the claim"
	repeatedClaimIsSuperseded   fault = "repeated claim is superseded"
	repeatedPutIsRefused        fault = "repeated put is refused"
	repeatedPutStoresAgain      fault = "repeated put stores again"
	smallerTokenClaims          fault = "smaller token claims"
	tokensAreFloats             fault = "tokens are floats"
	valueNeverEnds              fault = "value never ends"
	valuesAreShared             fault = "values are shared"
)

const model = "RandomStepsGoAsInTheModel"

// caught says for each fault which checks must fail: only those that fail every time.
var caught = map[fault][]string{
	badInputIsTaken:             {"WhatCannotBeMeantIsRefused"},
	claimDropsTheValue:          {"WhatIsPutIsRead", "LeftIsWhatIsLeft", "ValueStaysWhileAnotherIsLoaded", model},
	claimHidesTheValue:          {"ValueStaysWhileAnotherIsLoaded", "ClaimDoesNotShortenAValue", model},
	claimIsShortened:            {"ClaimIsNotShortened", model},
	claimNeverEnds:              {"EndedClaimLetsSmallerTokensIn"},
	claimProlongsTheValue:       {"ClaimDoesNotProlongAValue", "LeftIsWhatIsLeft", model},
	claimRevives:                {"ValueEnds", model},
	claimShortensTheValue:       {"ClaimDoesNotShortenAValue", "LeftIsWhatIsLeft", model},
	claimsSurviveTheirValues:    {"ForgottenClaimStoresNothing"},
	emptyIsNothing:              {"WhatIsPutIsRead", "NilIsStoredAsAnEmptyValue"},
	entryEndsWithTheClaim:       {"EndOfAClaimLeavesItsValue", model},
	invalidationForgetsTheClaim: {"LateCopyOfAClaimIsSuperseded", model},
	invalidationLeavesTheClaim:  {"InvalidatedLoadIsNotStored", "InvalidatedReloadIsNotStored", "PeersShareTheEntries", "InvalidationSurvivesALostReply", model},
	invalidationLeavesTheValue:  {"InvalidatedValueIsGone", "InvalidationSurvivesALostReply", "LateCopyOfAPutIsNotStored", "NothingOlderIsReadThanWasInvalidated", model},
	invalidationNeedsAnEntry:    {"NothingMayBeInvalidated"},
	keysFoldCase:                {"KeysAreApart"},
	leftIsTheSameForAll:         {"LeftIsWhatIsLeft", model},
	nothingIsEmpty:              {"NothingIsThereAtFirst", "InvalidatedLoadIsNotStored", model},
	peersAreApart:               {"PeersShareTheEntries", "LargerTokenTakesTheClaim"},
	putChecksThenStores:         {"NothingOlderIsReadThanWasInvalidated"},
	putEndsTheClaim:             {"ClaimOutlivesItsValue", "PutSurvivesALostReply", "SmallerTokenIsSuperseded", model},
	putIgnoresTheToken:          {"PutNeedsItsOwnClaim", "LargerTokenTakesTheClaim", model},
	putKeepsTheCallersSlice:     {"ValuesBelongToTheCaller"},
	putNeedsNoClaim:             {"PutNeedsAClaim", "ForgottenClaimStoresNothing"},
	putTakesTheClaim:            {"PutNeedsItsOwnClaim", model},
	repeatedClaimIsSuperseded:   {"ClaimMayBeRepeated", "AnotherClaimAllowsAnotherPut", "ClaimSurvivesALostReply", model},
	repeatedPutIsRefused:        {"FirstPutOfAClaimCounts", "PutSurvivesALostReply", model},
	repeatedPutStoresAgain:      {"FirstPutOfAClaimCounts", "RepeatedPutBringsNoEndedValueBack", model},
	smallerTokenClaims:          {"SmallerTokenIsSuperseded", "LargerClaimOutlivesASmallerOne", "LateCopyOfAClaimIsSuperseded", model},
	tokensAreFloats:             {"TokensAreComparedExactly", model},
	valueNeverEnds:              {"ValueEnds", "NewValueMayEndSooner", "ClaimDoesNotProlongAValue", model},
	valuesAreShared:             {"ValuesBelongToTheCaller"},
}

// faultVar has the tests of another process run with a fault.
const faultVar = "LOCKAROUND_CACHETEST_FAULT"

// TestReference passes, but for the fault that the environment names.
func TestReference(t *testing.T) {
	f := fault(os.Getenv(faultVar))
	cachetest.RunInBubble(t, func(*testing.T) *cachetest.Harness {
		r := newReference(f)
		h := &cachetest.Harness{Store: r, Peer: r, Forget: r.forget, LoseReply: r.loseReply}
		if f == peersAreApart {
			h.Peer = newReference(f)
		}
		return h
	})
}

var failed = regexp.MustCompile(`(?m)^ +--- FAIL: TestReference/(\w+)`)

func TestEveryMistakeIsCaught(t *testing.T) {
	if os.Getenv(faultVar) != "" {
		t.Skip("the tests run with a fault")
	}
	if testing.Short() {
		t.Skip("runs the suite for each mistake")
	}
	for f, want := range caught {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			got := failures(t, f)
			for _, c := range want {
				if !slices.Contains(got, c) {
					t.Errorf("%s does not notice; these do: %v", c, got)
				}
			}
		})
	}
}

// failures runs the suite on the reference with a fault and returns which checks fail.
func failures(t *testing.T, f fault) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestReference$", "-test.count=1")
	cmd.Env = append(os.Environ(), faultVar+"="+string(f))
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the suite passes")
	}
	var names []string
	for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	if names == nil {
		t.Fatalf("no check fails, but: %v\n%s", err, out)
	}
	return names
}

// TestEveryCheckCanFail: a check that no mistake fails tests nothing.
func TestEveryCheckCanFail(t *testing.T) {
	noticed := make(map[string]bool)
	for _, names := range caught {
		for _, n := range names {
			noticed[n] = true
		}
	}
	for _, name := range cachetest.Names() {
		if !noticed[name] {
			t.Errorf("no mistake fails %s", name)
		}
		delete(noticed, name)
	}
	for name := range noticed {
		t.Errorf("there is no check %s", name)
	}
}
