package simulation

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// History is what happened in a world. It is safe for concurrent use.
type History struct {
	start time.Time

	mu         sync.Mutex
	events     []event
	violations []string
	attempts   []Attempt
	claims     []Claim
	sends      int
	counts     map[string]int
	largest    map[string]int64 // token ever issued, by key
	issued     map[string]int64 // by owner
	fresh      []issue          // by the script that runs
}

type event struct {
	at     time.Duration
	format string
	args   []any
}

// Attempt is one call that asks for a lock.
type Attempt struct {
	Process int
	Key     string
	Room    int   // how many may hold together; 0 is any number
	Token   int64 // if granted
	Granted bool
	Waits   bool
	Call    time.Time
	Return  time.Time
	By      time.Time // when it had to have returned; zero if there is no such time
}

// Claim is the time in which a caller counts on a lock that it was granted.
type Claim struct {
	Process int
	Key     string
	Room    int // as in its Attempt
	Token   int64
	Start   time.Time // the acquisition returned
	End     time.Time // the earliest of: release called, loss signalled, deadline, death
	Gone    time.Time // the release returned, or the process died
}

// Note adds an event. The arguments must not change later.
func (h *History) Note(format string, args ...any) {
	at := time.Since(h.start)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{at, format, args})
}

// Violation adds a broken promise.
func (h *History) Violation(format string, args ...any) {
	h.Note("VIOLATION: "+format, args...)
	text := fmt.Sprintf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, fmt.Sprintf("%v: %s", time.Since(h.start), text))
}

// Count adds to the tally of something that happened.
func (h *History) Count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = make(map[string]int)
	}
	h.counts[what]++
}

// Attempted records an attempt.
func (h *History) Attempted(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts = append(h.attempts, a)
}

// Claimed records a claim.
func (h *History) Claimed(c Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims = append(h.claims, c)
}

// Sends returns how many batches were sent, by all processes.
func (h *History) Sends() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sends
}

// Counts returns the tally.
func (h *History) Counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

// Violations returns the broken promises that were noted.
func (h *History) Violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.violations
}

func (h *History) sent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sends++
}

// issue is a token that a script granted to an owner.
type issue struct {
	owner string
	token int64
}

// grant notes a token that the script which runs has issued. A script that lets in
// several tells them in any order.
func (h *History) grant(owner string, token int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fresh = append(h.fresh, issue{owner, token})
}

// granted checks what a script has issued for a key: a new token is larger than all
// before it, whatever the server has gone through.
func (h *History) granted(key string) {
	h.mu.Lock()
	if h.issued == nil {
		h.issued, h.largest = make(map[string]int64), make(map[string]int64)
	}
	fresh := h.fresh
	h.fresh = nil
	slices.SortFunc(fresh, func(a, b issue) int { return cmp.Compare(a.token, b.token) })
	var late []int64
	largest := h.largest[key]
	for _, is := range fresh {
		if h.issued[is.owner] != is.token && is.token <= h.largest[key] {
			late = append(late, is.token)
		}
		h.issued[is.owner], h.largest[key] = is.token, max(h.largest[key], is.token)
	}
	h.mu.Unlock()
	for _, token := range late {
		h.Violation("tokens: the server issues %d for %s after %d", token, key, largest)
	}
}

func (h *History) executed(process int, c Command, value any, how string) {
	owner := "-"
	if len(c.Args) > 0 {
		text, _ := c.Args[0].(string)
		owner = short(text)
	}
	next, status := "", protocol.Status(0)
	switch c.Script.Name {
	case protocol.Acquire.Name:
		r, err := protocol.ParseAcquire(value)
		if status = r.Status; err == nil && status == protocol.Granted {
			text, _ := c.Args[0].(string)
			h.grant(text, r.Token)
		}
	case protocol.End.Name:
		r, _ := protocol.ParseEnd(value)
		status = r.Status
		if len(c.Args) > 2 {
			text, _ := c.Args[2].(string)
			next = " next " + short(text)
			if r.Next == protocol.Granted {
				h.grant(text, r.Token)
			}
		}
	case protocol.Renew.Name:
		r, _ := protocol.ParseRenew(value)
		status = r.Status
	}
	h.granted(c.Key)
	h.Note("  server%s: %s %s%s of process %d on %s -> %v", how, c.Script.Name, owner, next, process, c.Key, value)
	if status != 0 {
		h.Count(c.Script.Name + " " + status.String())
	}
}

func (h *History) pushed(process int, p protocol.Push) {
	h.Note("  push %c to process %d: owner %s, token %d, %d wait", p.Kind, process, short(string(p.Owner[:])), p.Token, p.Waiting)
	h.Count("push " + string(rune(p.Kind)))
}

// String returns the events, one a line. Of a long history it leaves out the
// middle.
func (h *History) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	const head, tail = 40, 1500
	var b strings.Builder
	for i, e := range h.events {
		if i >= head && i < len(h.events)-tail {
			if i == head {
				fmt.Fprintf(&b, "… %d events …\n", len(h.events)-head-tail)
			}
			continue
		}
		fmt.Fprintf(&b, "%14.6f ", e.at.Seconds()*1000)
		fmt.Fprintf(&b, e.format, e.args...)
		b.WriteByte('\n')
	}
	return b.String()
}

func short(owner string) string {
	return hex.EncodeToString([]byte(owner[:min(3, len(owner))]))
}
