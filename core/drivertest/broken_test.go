package drivertest_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest"
	"go.uber.org/goleak"
)

// fault is a classical mistake of lock drivers, switched on in the reference
// driver.
type fault string

// The faults; each is described by its row in the table below.
const (
	none                     fault = ""
	capabilitiesAreEmpty     fault = "capabilities are empty"
	openAsksTheStore         fault = "open asks the store"
	inspectTakesAPlace       fault = "inspect takes a place"
	leaseEndsWithItsContext  fault = "lease ends with its context"
	exclusionIsChecked       fault = "exclusion is checked, then written"
	lastComeFirstServed      fault = "last come, first served"
	newcomersOvertake        fault = "newcomers overtake"
	acquireForgetsItsOwner   fault = "acquire forgets its owner"
	acquireGrantsAnew        fault = "acquire grants anew"
	releasedOwnerLivesAgain  fault = "released owner lives again"
	expiredOwnerLivesAgain   fault = "expired owner lives again"
	releaseDoesNotCompare    fault = "release does not compare"
	renewalDoesNotCompare    fault = "renewal does not compare"
	repeatedReleaseIsNotHeld fault = "repeated release is not held"
	lateReleaseIsNoError     fault = "late release is no error"
	batchFailsTogether       fault = "batch fails together"
	renewalCreates           fault = "renewal creates"
	renewalShortens          fault = "renewal shortens"
	renewalDoesNothing       fault = "renewal does nothing"
	renewalIsOfThePlace      fault = "renewal is of the place"
	placeNeverLapses         fault = "place never lapses"
	ttlIsRoundedDown         fault = "TTL is rounded down"
	shortTTLNeverEnds        fault = "short TTL never ends"
	marginIsMissing          fault = "margin is missing"
	deadlineFromTheReply     fault = "deadline from the reply"
	tokenAtPlace             fault = "token at the place in the queue"
	tokenAtAWritersPlace     fault = "token at a writer's place in the queue, and at a sharer's grant"
	tokenDrawnAhead          fault = "token drawn ahead"
	tokensAreACounter        fault = "tokens are a counter"
	contextIsIgnored         fault = "context is ignored"
	cancelIsIgnored          fault = "cancel is ignored"
	storeTimeoutIsIgnored    fault = "store timeout is ignored"
	refusalIsTakenForSilence fault = "refusal is taken for silence"
	givenUpIsForgotten       fault = "given up is forgotten"
	givenUpIsNotBurnt        fault = "given up is not burnt"
	waiterDoesNotPoll        fault = "waiter does not poll"
	replaceIgnoresTheQueue   fault = "replace ignores the queue"
	replaceLeavesTheOld      fault = "replace leaves the old"
	replaceDoesNotCompare    fault = "replace does not compare"
	replaceKeepsTheToken     fault = "replace keeps the token"
	holderIsNotTold          fault = "holder is not told"
	renewalHidesWaiters      fault = "renewal hides waiters"
	grantHidesWaiters        fault = "grant hides waiters"
	waitingIsNotReported     fault = "waiting is not reported"
	keepIsIgnored            fault = "keep is ignored"
	keepEndsWithTheTTL       fault = "keep ends with the TTL"
	keysFoldCase             fault = "keys fold case"
	keysEndAtNUL             fault = "keys end at NUL"
	closeLeavesWaits         fault = "close leaves waits"
	closedSessionServes      fault = "closed session serves"
	closeReleases            fault = "close releases"
	goroutineOutlivesSession fault = "goroutine outlives session"
	pingWantsAnAnswerAtOnce  fault = "ping wants an answer at once"
	everybodyWaits           fault = "everybody waits"
	failureIsTakenForLoss    fault = "failure is taken for loss"
	leasesAreVolatile        fault = "leases are volatile"
	handOverKeepsTheToken    fault = "hand-over keeps the token"
	withdrawalLeavesAGrant   fault = "withdrawal leaves a grant"
	wakeUpsAreNotSent        fault = "wake-ups are not sent"
	keepCountsFromTheRelease fault = "keep counts from the release"
	batchIsCut               fault = "batch is cut"
	placeIsNotRefreshed      fault = "place is not refreshed"
	waitHoldsAConnection     fault = "wait holds a connection"
	replacedIsNotCleanedUp   fault = "replaced is not cleaned up"
	sharesAreExclusive       fault = "shares are exclusive"
	ownRoomIsIgnored         fault = "own room is ignored"
	holdersRoomIsIgnored     fault = "holders' room is ignored"
	sharersPassTheQueue      fault = "sharers pass the queue"
	oneIsLetInAtATime        fault = "one is let in at a time"
	renewalExtendsAll        fault = "renewal extends all"
	grantExtendsAll          fault = "grant extends all"
	releaseEndsAll           fault = "release ends all"
	keepFreesAPermit         fault = "keep frees a permit"
	loweringDoesNothing      fault = "lowering does nothing"
	loweringFreesTheKey      fault = "lowering frees the key"
	loweringCreates          fault = "lowering creates"
	oustDoesNothing          fault = "oust does nothing"
	oustEndsAll              fault = "oust ends all"
	oustEndsTheLatest        fault = "oust ends the latest"
	oustedIsNotTold          fault = "ousted is not told"
	oustedMayComeBack        fault = "ousted may come back"
	inspectHidesTheMode      fault = "inspect hides the mode"
	sessionsAreServedInTurn  fault = "sessions are served in turn"
	onlyWaitersAreTold       fault = "only waiters are told of"
	boundIsIgnored           fault = "bound is ignored"
	boundCountsHolders       fault = "bound counts holders but the first"
	boundRefusesItsOwn       fault = "bound refuses its own"
	beginTakesItsTime        fault = "begin takes its time"
	begunIsForgotten         fault = "begun is forgotten"
	begunHasAPlaceOfItsOwn   fault = "begun has a place of its own"
	begunTogetherIsMixedUp   fault = "begun together is mixed up"
	lostReplyLeavesAGhost    fault = "lost reply leaves a ghost"
	silenceLeavesAGoroutine  fault = "silence leaves a goroutine"
	endOfKeepIsSleptThrough  fault = "end of Keep is slept through"
	afterIsIgnored           fault = "after is ignored"
	writtenIsTheAnswer       fault = "written is the answer"
	afterHidesTheRelease     fault = "after hides the release"
	afterForgivesALoss       fault = "after forgives a loss"
	setupStopsTheStore       fault = "set-up stops the store"
	setupFailsBesideTraffic  fault = "set-up fails beside traffic"
	holderIsTheFirstEver     fault = "holder is the first ever"
	refusalNamesNobody       fault = "refusal names nobody"
	waiterIsNotToldWhoHolds  fault = "waiter is not told who holds"
	holdersHaveOneName       fault = "holders have one name"
	holdersHaveOneTrace      fault = "holders have one trace"
	keptKeyIsTheHolders      fault = "kept key is the holder's"
	tracesAreIgnored         fault = "traces are ignored"
	tracesStay               fault = "traces stay"
	topicsAreOne             fault = "topics are one"
	messageIsCut             fault = "message is cut"
	stoppedListenerHears     fault = "stopped listener hears"
	secondListenerIsIgnored  fault = "second listener is ignored"
	listenerIsNotTold        fault = "listener is not told"
	tellIgnoresItsContext    fault = "tell ignores its context"
	closedSessionTells       fault = "closed session tells"
	listEndsAtItsLimit       fault = "list ends at its limit"
	listGoesByNumber         fault = "list goes by number"
	listIgnoresThePrefix     fault = "list ignores the prefix"
	listTakesThePrefixApart  fault = "list takes the prefix for a pattern"
)

// caught says for each fault which checks must fail. Only those are listed that
// fail every time, not those that it takes luck to fail.
var caught = map[fault][]string{
	capabilitiesAreEmpty:     {"CapabilitiesAreSaneAndConstant"},
	openAsksTheStore:         {"OpenDoesNoIO"},
	inspectTakesAPlace:       {"GrantIsComplete", "InspectChangesNothing"},
	leaseEndsWithItsContext:  {"GrantOutlivesItsContext"},
	exclusionIsChecked:       {"OneHolderUnderLoad"},
	lastComeFirstServed:      {"QueueIsServedInOrder"},
	newcomersOvertake:        {"NewcomerDoesNotOvertakeTheQueue"},
	acquireForgetsItsOwner:   {"AcquireIsIdempotent", "AcquireSurvivesALostReply", "AcquireGivenUpAfterALostReplyLeavesNothing", "ReplaceSurvivesALostReply", "RequestAfterAReleaseSurvivesALostReply"},
	acquireGrantsAnew:        {"AcquireIsIdempotent", "ReplaceIsIdempotent"},
	releasedOwnerLivesAgain:  {"ReleasedOwnerIsNeverGrantedAgain", "ReplaceIsIdempotent"},
	expiredOwnerLivesAgain:   {"ExpiredOwnerIsNeverGrantedAgain", "WithdrawnOwnerIsNeverGranted"},
	releaseDoesNotCompare:    {"ForeignOwnerChangesNothing", "RepeatedReleaseLeavesNextOwnerAlone", "ReleaseAfterExpiryLeavesNextOwnerAlone", "EndEndsItsOwnLeaseOnly"},
	renewalDoesNotCompare:    {"ForeignOwnerChangesNothing", "RenewalNeverCreates"},
	repeatedReleaseIsNotHeld: {"RepeatedReleaseIsNoError", "ReleaseSurvivesALostReply"},
	lateReleaseIsNoError:     {"ReleaseAfterExpiryIsNotHeld", "ReleaseAfterExpiryLeavesNextOwnerAlone"},
	batchFailsTogether:       {"ReleaseOfManyAnswersEach", "RenewalOfManyAnswersEach"},
	renewalCreates:           {"RenewalNeverCreates", "RenewalNeverCreatesAfterLossOfData"},
	renewalShortens:          {"RenewalNeverShortens"},
	renewalDoesNothing:       {"RenewalExtends"},
	renewalIsOfThePlace:      {"RenewalGivesAHandedOverLeaseItsTTL"},
	placeNeverLapses:         {"SilentWaiterDelaysNobodyForLong"},
	ttlIsRoundedDown:         {"DeadlineIsBeforeTheStoresExpiry", "OneHolderAcrossExpiry"},
	shortTTLNeverEnds:        {"ShortestTTLWorks", "ExpiryServesTheWaiter", "ReleaseAfterExpiryIsNotHeld"},
	marginIsMissing:          {"DeadlineIsBeforeTheStoresExpiry"},
	deadlineFromTheReply:     {"DeadlineCountsFromBeforeTheSend"},
	tokenAtPlace:             {"TokensAreIssuedAtGrant"},
	tokenAtAWritersPlace:     {"TokensRiseFromModeToMode"},
	tokenDrawnAhead:          {"TokensAreIssuedAtGrantThoughRepliesAreLate"},
	tokensAreACounter:        {"TokensRiseAcrossLossOfData", "TokensRiseAcrossRestart"},
	contextIsIgnored:         {"SilentStoreDelaysNoCall"},
	cancelIsIgnored:          {"SilentStoreDelaysNoCall"},
	storeTimeoutIsIgnored:    {"SilentStoreEndsEachAttempt"},
	refusalIsTakenForSilence: {"StoresRefusalIsToldWithItsCause"},
	givenUpIsForgotten:       {"WithdrawnWaiterLeavesNothing", "WithdrawalRacingWithReleaseLeavesNothing", "WithdrawnOwnerIsNeverGranted", "AcquireGivenUpInSilenceLeavesNothing", "WaiterGivenUpInSilenceLeavesNothing", "CloseEndsWaits", "ReplaceGivenUpLeavesNothing"},
	givenUpIsNotBurnt:        {"AcquireGivenUpInSilenceLeavesNothing"},
	waiterDoesNotPoll:        {"LostWakeUpDelaysByAtMostWake", "LostWakeUpAfterExpiryDelaysByAtMostWake", "ExpiryServesTheWaiter"},
	replaceIgnoresTheQueue:   {"ReplaceQueuesBehindOthers", "ReplaceThatDoesNotWaitYieldsToOthers"},
	writtenIsTheAnswer:       {"ReleaseTellsThatItIsWrittenBeforeTheAnswer"},
	afterIsIgnored:           {"RequestAfterAReleaseIsNotHeldUpByIt", "RequestAfterAReleaseQueuesBehindOthers"},
	afterHidesTheRelease:     {"RequestAfterAReleaseIsNotHeldUpByIt"},
	afterForgivesALoss:       {"RequestAfterALostLeaseSaysThatItWasLost"},
	replaceLeavesTheOld:      {"ReplaceHandsOverWhenNobodyWaits", "ReplaceQueuesBehindOthers", "ReplaceOfAShareQueuesBehindOthers"},
	replaceDoesNotCompare:    {"ReplaceOfAnEndedLeaseEndsNobodyElses"},
	replaceKeepsTheToken:     {"ReplaceHandsOverWhenNobodyWaits"},
	holderIsNotTold:          {"HolderLearnsOfWaiters"},
	renewalHidesWaiters:      {"RenewalTellsOfWaiters"},
	grantHidesWaiters:        {"GrantTellsOfWaiters"},
	waitingIsNotReported:     {"WaitingIsReportedForWaitersOnly"},
	keepIsIgnored:            {"KeepLeavesTheKeyTaken"},
	keepEndsWithTheTTL:       {"KeepOutlastsTheTTL"},
	keysFoldCase:             {"HostileKeysDoNotCollide"},
	keysEndAtNUL:             {"HostileKeysDoNotCollide"},
	closeLeavesWaits:         {"CloseEndsWaits"},
	closedSessionServes:      {"ClosedSessionRefuses", "CloseEndsWaits"},
	closeReleases:            {"CloseKeepsGrantedLeases"},
	goroutineOutlivesSession: {"CloseLeavesNoGoroutine"},
	pingWantsAnAnswerAtOnce:  {"PingSucceeds"},
	everybodyWaits:           {"HeldKeyIsRefusedAtOnce", "ReplaceThatDoesNotWaitYieldsToOthers"},
	failureIsTakenForLoss:    {"RenewalSurvivesALostReply", "SilentStoreDelaysNoCall", "SessionWorksOnAfterSilence"},
	leasesAreVolatile:        {"LeaseSurvivesRestart"},
	handOverKeepsTheToken:    {"TokensRise", "TokensAreIssuedAtGrant", "OneHolderUnderLoad"},
	withdrawalLeavesAGrant:   {"WithdrawalAfterGrantLeavesNothing", "AcquireWithDeadContextLeavesNothing"},
	wakeUpsAreNotSent:        {"ReleaseWakesTheWaiter", "LostWakeUpDelaysByAtMostWake"},
	keepCountsFromTheRelease: {"KeepThatHasPassedFreesAtOnce"},
	batchIsCut:               {"KeysAreIndependent"},
	placeIsNotRefreshed:      {"LiveWaiterKeepsItsPlace"},
	waitHoldsAConnection:     {"WaitersLeaveRoomForOthers"},
	replacedIsNotCleanedUp:   {"ReplaceGivenUpInSilenceLeavesNothing"},
	sharesAreExclusive:       {"SharersHoldTogether", "ShareSurvivesALostReply", "WithdrawnWriterLetsSharersIn", "SemaphoreGrantsItsLimit", "KeepTakesOnePermit", "LoweredLeaseLetsSharersIn", "LoweringSurvivesALostReply"},
	ownRoomIsIgnored:         {"SharersKeepWritersOut", "SmallestLimitRules", "ModesMixByTheirRoom", "NobodyIsTooManyUnderLoad", "LoweredLeaseKeepsWritersOut"},
	holdersRoomIsIgnored:     {"WriterKeepsSharersOut", "SmallestLimitRules", "ModesMixByTheirRoom", "NobodyIsTooManyUnderLoad"},
	sharersPassTheQueue:      {"SharerDoesNotPassAWriterThatWaits"},
	oneIsLetInAtATime:        {"SharersThatWaitAreLetInTogether"},
	renewalExtendsAll:        {"ShareExpiresAlone"},
	grantExtendsAll:          {"PermitsHaveExpiriesOfTheirOwn"},
	releaseEndsAll:           {"ShareEndsAlone", "SemaphoreServesItsQueueInOrder"},
	keepFreesAPermit:         {"KeepTakesOnePermit"},
	loweringDoesNothing:      {"LoweredLeaseLetsSharersIn"},
	loweringFreesTheKey:      {"LoweredLeaseKeepsWritersOut", "LoweredLeaseLetsSharersIn"},
	loweringCreates:          {"LoweringALostLeaseCreatesNone"},
	oustDoesNothing:          {"OustEndsEveryLease", "OustServesTheWaiter"},
	oustEndsAll:              {"OustSparesWhoCameLater"},
	oustEndsTheLatest:        {"OustEndsEveryLease"},
	oustedIsNotTold:          {"OustEndsEveryLease", "OustServesTheWaiter"},
	oustedMayComeBack:        {"OustServesTheWaiter"},
	inspectHidesTheMode:      {"InspectNamesTheHolders"},
	sessionsAreServedInTurn:  {"CallersOfAllProcessesAreServedInOrder"},
	onlyWaitersAreTold:       {"HolderLearnsOfThoseWhoDoNotWait"},
	boundIsIgnored:           {"FullQueueRefusesAtOnce", "FullQueueKeepsWhoIsInIt"},
	boundCountsHolders:       {"HoldersAreNotInTheQueue"},
	boundRefusesItsOwn:       {"FullQueueKeepsWhoIsInIt"},
	beginTakesItsTime:        {"PromptCallsReturnInTimeFromSilence"},
	begunIsForgotten:         {"BegunAndGivenUpLeavesNothing"},
	begunTogetherIsMixedUp:   {"RequestsBegunTogetherHaveResultsOfTheirOwn"},
	begunHasAPlaceOfItsOwn:   {"BegunWaiterHasOnePlace"},
	endOfKeepIsSleptThrough:  {"KeptKeyWakesItsWaiterInTime"},
	setupStopsTheStore:       {"SetupBesideTrafficHarmsNobody"},
	setupFailsBesideTraffic:  {"SetupBesideTrafficHarmsNobody"},
	holderIsTheFirstEver:     {"HolderIsNamed", "TraceOfTheRequestIsTold"},
	refusalNamesNobody:       {"RefusalNamesTheHolder", "TraceOfTheRequestIsTold"},
	waiterIsNotToldWhoHolds:  {"WaiterLearnsWhoHolds", "TraceOfTheRequestIsTold"},
	holdersHaveOneName:       {"HoldersTogetherAreNamedEach"},
	holdersHaveOneTrace:      {"HoldersTogetherHaveNoTraceButTheirOwn"},
	keptKeyIsTheHolders:      {"KeptKeyIsNobodys"},
	tracesAreIgnored:         {"TraceOfTheRequestIsTold"},
	tracesStay:               {"TraceOfAnEarlierHolderIsNotTold"},
	topicsAreOne:             {"MessageReachesThoseWhoListenToItsTopic"},
	messageIsCut:             {"MessageReachesThoseWhoListenToItsTopic"},
	stoppedListenerHears:     {"MessageReachesThoseWhoListenToItsTopic"},
	secondListenerIsIgnored:  {"MessageReachesThoseWhoListenToItsTopic"},
	listenerIsNotTold:        {"ListenerIsToldWhenItListens"},
	tellIgnoresItsContext:    {"TellEndsWithItsContext"},
	closedSessionTells:       {"ClosedSessionTellsNobody"},
	listEndsAtItsLimit:       {"ListNamesEveryTakenKey", "ListBearsKeysThatComeAndGo"},
	listGoesByNumber:         {"ListBearsKeysThatComeAndGo"},
	listIgnoresThePrefix:     {"ListKeepsToItsPrefix"},
	listTakesThePrefixApart:  {"ListKeepsToItsPrefix"},
}

// faultVariable tells a process of this test which fault its driver has.
const faultVariable = "DRIVERTEST_FAULT"

func TestMain(m *testing.M) {
	if os.Getenv(faultVariable) != "" {
		os.Exit(m.Run()) // a broken driver may leak
	}
	goleak.VerifyTestMain(m)
}

// harness is a store of its own for each check.
func harness(f fault) func(*testing.T) *drivertest.Harness {
	return func(*testing.T) *drivertest.Harness {
		s := &store{fault: f, keys: make(map[string]*record)}
		w := &wire{drops: make(map[drivertest.Op]int)}
		past := &wire{drops: make(map[drivertest.Op]int)}
		return &drivertest.Harness{
			Driver:       &reference{fault: f, store: s, wire: w},
			Peer:         &reference{fault: f, store: s, wire: past},
			Stall:        w.stall,
			Refuse:       w.refuse,
			DropReply:    w.dropReply,
			DelayReplies: w.delayReplies,
			LosePushes:   w.losePushes,
			Restart:      s.restart,
			Wipe:         s.wipe,
			Evict:        s.wipe,
			Setup:        func(context.Context) error { return w.setup(s) },
		}
	}
}

func TestCorrectDriverPasses(t *testing.T) {
	drivertest.RunInBubbles(t, harness(none))
}

func TestCheckNamesTheAbilityItLacks(t *testing.T) {
	full := harness(none)(t)
	for name, missing := range drivertest.Missing(full) {
		t.Errorf("%s lacks %v with a harness that has everything", name, missing)
	}
	bare := drivertest.Missing(&drivertest.Harness{Driver: full.Driver})
	for name, want := range map[string][]string{
		"OneHolderUnderLoad":              nil,
		"AcquireSurvivesALostReply":       {"Harness.DropReply"},
		"SilentStoreDelaysNoCall":         {"Harness.Stall"},
		"SilentWaiterDelaysNobodyForLong": {"Harness.Stall", "Harness.Peer"},
	} {
		if got := bare[name]; !slices.Equal(got, want) {
			t.Errorf("with a bare harness %s lacks %v, not %v", name, got, want)
		}
	}
}
