package endurance

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// Variable is the environment variable that, set to all, has every instance of each
// figure tried. Some minutes pass then.
const Variable = counts.Variable

// figure is a promise and how often it is tried.
type figure struct {
	number    int
	name      string
	full, few int // instances of all runs, and of the small one
	needs     []need

	// lanes is how many harnesses share the instances in a full run, because the fault
	// can be made to one thing at a time only.
	lanes int

	// alone keeps other figures from running beside it.
	alone bool

	// try tries n instances.
	try func(l *lane, n int)

	// text is what was reached.
	text func(r *record) string
}

var figures = []figure{
	silences,
	pauses,
	lostReplies,
	releases,
	partitions,
	wakeUps,
	withdrawals,
	restarts,
	losses,
	evictions,
}

// need is an ability of the harness, or of the driver, that a figure works with.
type need struct {
	what string
	met  func(h *drivertest.Harness) bool
}

var (
	dropping      = need{"Harness.DropReply", func(h *drivertest.Harness) bool { return h.DropReply != nil }}
	stalling      = need{"Harness.Stall", func(h *drivertest.Harness) bool { return h.Stall != nil }}
	losing        = need{"Harness.LosePushes", func(h *drivertest.Harness) bool { return h.LosePushes != nil }}
	restarting    = need{"Harness.Restart", func(h *drivertest.Harness) bool { return h.Restart != nil }}
	wiping        = need{"Harness.Wipe", func(h *drivertest.Harness) bool { return h.Wipe != nil }}
	evicting      = need{"Harness.Evict", func(h *drivertest.Harness) bool { return h.Evict != nil }}
	aWayPast      = need{"Harness.Peer", func(h *drivertest.Harness) bool { return h.Peer != nil }}
	issuingTokens = need{"Capabilities.Tokens", func(h *drivertest.Harness) bool {
		return h.Driver.Capabilities().Tokens != driver.NoTokens
	}}
)

// Names returns the names of the figures' subtests.
func Names() []string {
	names := make([]string, len(figures))
	for i, fig := range figures {
		names[i] = fig.name
	}
	return names
}

// Run tries every figure, each as a subtest of t that is named after its promise.
// newHarness is called for each, in a full run for several at a time, with a subtest of
// that one. The abilities of one harness are called by one goroutine at a time.
//
// What counts goroutines runs before the others and expects that no other test of the
// process runs beside it: do not call t.Parallel before.
func Run(t *testing.T, newHarness func(t *testing.T) *drivertest.Harness) {
	t.Helper()
	for _, fig := range figures {
		t.Run(fig.name, func(t *testing.T) { fig.start(t, newHarness) })
	}
}

func (fig figure) start(t *testing.T, newHarness func(t *testing.T) *drivertest.Harness) {
	full := counts.Full(t)
	n, lanes := fig.few, 1
	switch {
	case full:
		n, lanes = fig.full, max(1, fig.lanes)
	case !fig.alone:
		t.Parallel()
	}
	h := newHarness(t)
	if h == nil || h.Driver == nil {
		t.Fatal("the harness has no Driver; one is required")
	}
	if missing := fig.missing(h); len(missing) > 0 {
		t.Skipf("needs %s", strings.Join(missing, " and "))
	}
	r := newRecord(t, full)
	defer r.machine.stop()
	if lanes == 1 {
		fig.lane(t, h, r, n)
	} else {
		t.Run("lanes", func(t *testing.T) {
			for i := range lanes {
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					t.Parallel()
					h := h
					if i > 0 {
						h = newHarness(t)
					}
					fig.lane(t, h, r, (n+lanes-1-i)/lanes)
				})
			}
		})
	}
	fig.tell(t, r, n)
}

// missing names what the figure needs and does not have.
func (fig figure) missing(h *drivertest.Harness) []string {
	var missing []string
	for _, n := range fig.needs {
		if !n.met(h) {
			missing = append(missing, n.what)
		}
	}
	return missing
}

// lane tries n instances with a harness.
func (fig figure) lane(t *testing.T, h *drivertest.Harness, r *record, n int) {
	l := newLane(t, h, r)
	fig.try(l, n)
	l.claims.judge(t)
}

// tell says what was reached, if it was.
func (fig figure) tell(t *testing.T, r *record, n int) {
	t.Helper()
	switch {
	case t.Failed():
	case r.done < n:
		t.Errorf("%d of %d instances were tried", r.done, n)
	case 2*r.slow > r.waits:
		// A machine that oversleeps makes some late, and a driver that waits too long most.
		t.Errorf("%d of %d bounded waits were late by more than %v, the latest by %v: %s", r.slow, r.waits, drivertest.Slack, r.latest, fig.text(r))
	case r.late > 0:
		t.Logf("figure %d was not reached in this run: %s; late by up to %v: %d", fig.number, fig.text(r), r.latest, r.late)
	default:
		t.Attr("figure-"+strconv.Itoa(fig.number), fig.text(r))
	}
}
