package routetest

import (
	"net/http"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

// Surface is how a package puts locks and fences around the routes of a router.
type Surface struct {
	// Mount returns a router with these routes.
	Mount func(t testing.TB, routes ...Route) http.Handler
	// Rest is what the router calls the rest "b/c" of a path: "b/c" or "/b/c".
	Rest string
	// ErrBody is the package's error of a body that cannot be read.
	ErrBody error
	// Answered reports whether a handler has begun the answer. It gets the writer of OnError.
	Answered func(http.ResponseWriter) bool
}

// Route is a handler and what goes around it.
type Route struct {
	Pattern string // in the syntax of http.ServeMux: "POST /products/{sku}"
	Around  []Wrap // the first is outermost
	Handler http.HandlerFunc
}

// Wrap describes a lock, a fence if it has a Guard, ReadTokens, or a compressing middleware.
// Options that are zero are not given.
type Wrap struct {
	Engine *core.Engine
	Policy core.Policy
	Guard  fence.Guard // makes it a fence for Policy.Key
	Tokens bool        // makes it ReadTokens
	Gzip   bool        // makes it a middleware that compresses what is written behind it

	Unbuffered bool // WithoutBodyBuffer
	BodyLimit  int64
	Filter     func(*http.Request) bool
	OnError    func(http.ResponseWriter, *http.Request, error)
	Values     map[string]func(*http.Request) (string, error)
}

// one mounts a handler behind wraps.
func (s Surface) one(t testing.TB, pattern string, h http.HandlerFunc, around ...Wrap) http.Handler {
	t.Helper()
	return s.Mount(t, Route{Pattern: pattern, Around: around, Handler: h})
}

// Test runs every case that is the same for all routers.
func Test(t *testing.T, s Surface) {
	for _, tc := range []struct {
		promise string
		test    func(*testing.T, Surface)
	}{
		{"RequestsForOneKeyRunOneAtATime", requestsForOneKeyRunOneAtATime},
		{"TakenKeyIsAConflictForItsOwnRequestsOnly", takenKeyIsAConflict},
		{"RefusedCallsNeverRun", refusedCallsNeverRun},
		{"LocksNestFromTheOutside", locksNest},
		{"PanicsPassThroughAndRelease", panicsPassThrough},
		{"FilterAloneLetsRequestsThroughUnlocked", filterLetsThrough},
		{"MiddlewareLogsWhereItsEngineDoes", logsWhereTheEngineDoes},
		{"AnswersNameNobodyWhoHolds", answersNameNobody},
		{"PolicyOfAnyModeGoesAroundACall", anyMode},
		{"KeyComesFromWhereItSays", keyComesFromWhereItSays},
		{"ListOfTheBodyLocksAKeyForEachElement", listLocksEachElement},
		{"HandlersFindTheWholeBody", handlersFindTheWholeBody},
		{"BodyOverTheLimit", bodyOverTheLimit},
		{"BodyIsLeftUnreadOnRequest", bodyLeftUnread},
		{"UploadedFilesAreRemoved", uploadedFilesAreRemoved},
		{"ClientThatHangsUpLeavesTheQueue", hangingUp},
		{"HTTP2ClientThatCancelsLeavesTheQueue", cancelling},
		{"RequestCancelledByAMiddlewareHasNoBody", cancelledBefore},
		{"SlowUploadHoldsNoLock", slowUpload},
		{"BodyThatDoesNotComeIsRefused", bodyThatDoesNotCome},
		{"ErrorHandlerAnswersInPlaceOfTheLock", errorHandlerAnswers},
		{"AnswerAboutALostLeaseCanBeReadBesideCompression", answerBesideCompression},
		{"RequestThatMayHaveRunIsNotSentAgain", notSentAgain},
		{"RequestThatNeverRanIsSentAgain", sentAgain},
		{"RequestRunsUnderTheTokenOfItsOwnKeyOnly", tokenOfItsOwnKey},
		{"GuardThatFailsKeepsTheHandlerFromRunning", failingGuard},
		{"CancelledRequestIsNotRefusedForTheGuard", cancelledAtTheGuard},
		{"OptionsOfAFence", optionsOfAFence},
		{"FenceOnARouteWithoutItsParameterRunsNothing", fenceWithoutParameter},
		{"FenceLeavesBodiesThatItDoesNotNeedUnread", fenceLeavesBodies},
		{"LeaseOfTheServerIsNoTokenOfItsClient", leaseIsNoToken},
		{"ReadTokensChecksNothingButTheirForm", readTokensCheckTheirForm},
		{"RequestOfTheHolderIsADeadlock", holdersRequest},
	} {
		t.Run(tc.promise, func(t *testing.T) { tc.test(t, s) })
	}
}
