package drivertest_test

import (
	"os"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest/endurance"
)

// worn says for each fault which figures are not reached.
var worn = map[fault][]string{
	acquireForgetsItsOwner:   {"LostRepliesGrantNothingTwice"},
	releaseDoesNotCompare:    {"LostRepliesGrantNothingTwice"},
	repeatedReleaseIsNotHeld: {"LostRepliesGrantNothingTwice"},
	failureIsTakenForLoss:    {"LostRepliesGrantNothingTwice"},
	lostReplyLeavesAGhost:    {"LostRepliesGrantNothingTwice"},
	renewalCreates:           {"ReleaseEndsRenewal"},
	ttlIsRoundedDown:         {"PartitionEndsTheHoldBeforeTheNextGrant"},
	wakeUpsAreNotSent:        {"LostWakeUpsDelayByAtMostWake"},
	beginTakesItsTime:        {"SilentStoreReturnsCallersInTime"},
	silenceLeavesAGoroutine:  {"SilentStoreReturnsCallersInTime"},
	givenUpIsForgotten:       {"CancelledWaitersLeaveNothing"},
	tokensAreACounter:        {"TokensRiseAcrossRestarts", "TokensRiseAcrossLossOfData", "TokensRiseAcrossEvictions"},
	handOverKeepsTheToken:    {"PausedHolderWritesNothing"},
}

func TestCorrectDriverEndures(t *testing.T) { endurance.Run(t, harness(none)) }

// TestBrokenDriverWears is what the processes of TestBrokenDriversWear run.
func TestBrokenDriverWears(t *testing.T) {
	f := fault(os.Getenv(faultVariable))
	if f == none {
		t.Skip("runs in processes that TestBrokenDriversWear starts")
	}
	endurance.Run(t, harness(f))
}

func TestBrokenDriversWear(t *testing.T) { mustFail(t, "TestBrokenDriverWears", worn) }

func TestEveryFigureIsProven(t *testing.T) { mustBeProven(t, endurance.Names(), worn) }
