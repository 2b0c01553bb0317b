package endurance

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/hiccups"
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

// record is what the lanes of a figure have found.
type record struct {
	machine *machine
	slack   *hiccups.Meter // what a bound may be missed by without failing; nil if by nothing

	mu      sync.Mutex
	done    int           // instances
	longest time.Duration // of the waits that are bounded, less what the machine stood still
	limit   time.Duration // of that
	still   time.Duration // that the machine stood still at most in a wait
	waits   int           // that are bounded
	late    int           // of them, those beyond their bound
	slow    int           // of them, those beyond it by drivertest.Slack
	latest  time.Duration // by how much at most
}

func newRecord(t *testing.T, full bool) *record {
	r := &record{machine: watchMachine()}
	if !full {
		r.slack = hiccups.Start(t)
	}
	return r
}

// tried counts instances.
func (r *record) tried(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += n
}

// waited takes in a wait that must not be longer than limit, less what the machine
// stood still in it, which is as much as limit at most.
func (r *record) waited(t *testing.T, from, to time.Time, limit time.Duration, what string) {
	t.Helper()
	took, still := to.Sub(from), min(limit, r.machine.stood(from, to))
	r.mu.Lock()
	r.longest, r.limit, r.still = max(r.longest, took-still), limit, max(r.still, still)
	over := took - still - limit
	r.waits++
	if over > drivertest.Slack {
		r.slow++
	}
	if over > 0 {
		r.late++
		r.latest = max(r.latest, over)
	}
	r.mu.Unlock()
	if over > 0 && (r.slack == nil || over > r.slack.Allow(drivertest.Slack)) {
		t.Errorf("%s took %v, of which %v are the machine's; the limit is %v", what, took, still, limit)
	}
}

// most is the longest wait, for a line of text.
func (r *record) most() string {
	s := fmt.Sprintf("%s, limit %s", short(r.longest), r.limit)
	if r.still > 0 {
		s += fmt.Sprintf(" (and up to %s in which the machine stood still)", short(r.still))
	}
	return s
}

// short is a duration without what nobody reads.
func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// count is a number with a comma after each three digits.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// machine measures when the machine stood still: by how much goroutines oversleep. There
// are several, because one processor may stand still while another goes on.
type machine struct {
	quit   chan struct{}
	all    sync.WaitGroup
	mu     sync.Mutex
	due    []time.Time // when each goroutine should be awake
	stills []span      // in the order of their ends
}

type span struct{ from, to time.Time }

const (
	nap    = 2 * time.Millisecond
	notice = 10 * time.Millisecond // less is within what the bounds grant
)

func watchMachine() *machine {
	m := &machine{quit: make(chan struct{}), due: make([]time.Time, 2*runtime.GOMAXPROCS(0))}
	for i := range m.due {
		m.due[i] = time.Now().Add(nap)
		m.all.Go(func() { m.watch(i) })
	}
	return m
}

func (m *machine) watch(i int) {
	timer := time.NewTimer(nap)
	defer timer.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-timer.C:
		}
		m.mu.Lock()
		now := time.Now()
		if now.Sub(m.due[i]) > notice {
			m.stills = append(m.stills, span{m.due[i], now})
		}
		m.due[i] = now.Add(nap)
		timer.Reset(nap)
		m.mu.Unlock()
	}
}

func (m *machine) stop() {
	close(m.quit)
	m.all.Wait()
}

// stood is how long the machine stood still in a time that has passed.
func (m *machine) stood(from, to time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var in []span
	add := func(s span) {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		if s.from.Before(s.to) {
			in = append(in, s)
		}
	}
	for _, due := range m.due {
		if now := time.Now(); now.Sub(due) > notice {
			add(span{due, now})
		}
	}
	for i := len(m.stills) - 1; i >= 0 && m.stills[i].to.After(from); i-- {
		add(m.stills[i])
	}
	slices.SortFunc(in, func(a, b span) int { return a.from.Compare(b.from) })
	var sum time.Duration
	end := from
	for _, s := range in { // two may have stood still at once
		if s.from.Before(end) {
			s.from = end
		}
		if s.from.Before(s.to) {
			sum += s.to.Sub(s.from)
			end = s.to
		}
	}
	return sum
}
