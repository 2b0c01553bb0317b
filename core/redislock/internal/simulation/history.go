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
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
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
	largest    map[string]int64    // token ever issued, by key
	largestBy  map[string]string   // its owner
	issued     map[string][]int64  // by owner
	fresh      []issue             // by the script that runs
	over       map[string]bool     // owners whose end was answered
	buried     map[string][]string // owners that the server remembers to have ended, by key
	pushedOut  map[string]bool     // those that it no longer remembers, since it was told of others
	ghosts     []string            // those that came back
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

func (h *History) begin(now time.Time) {
	h.start = now
	h.issued, h.largest, h.largestBy = make(map[string][]int64), make(map[string]int64), make(map[string]string)
	h.over, h.buried, h.pushedOut = make(map[string]bool), make(map[string][]string), make(map[string]bool)
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

// drawn notes a token that an owner has drawn for the lease that it holds. Only the first of a lease
// is held to what was issued before, since nobody but the owner knows the others. It may choose any of them: the
// answer to the first may be lost.
func (h *History) drawn(process int, c Command, id string, st reference.State, how string) {
	if d, err := protocol.ParseDrawn(id); err == nil && len(c.Args) > 0 && d.Token() > 0 {
		owner, _ := c.Args[0].(string)
		owner = owner[:min(len(owner), 16)]
		if slices.ContainsFunc(st.Holders, func(h reference.Holder) bool { return h.Owner == owner && h.Token == 0 }) {
			h.mu.Lock()
			known := len(h.issued[owner]) > 0
			if known {
				h.issued[owner] = append(h.issued[owner], d.Token())
			}
			h.mu.Unlock()
			if !known {
				h.grant(owner, d.Token())
				h.granted(c.Key, st)
			}
		}
	}
	h.Note("  server%s: draw of process %d on %s -> %s", how, process, c.Key, id)
}

// granted checks what was issued or drawn for a key in this state: a new token is larger than all
// before it, whatever the server has gone through. Those who hold together have any order.
func (h *History) granted(key string, st reference.State) {
	h.mu.Lock()
	fresh := h.fresh
	h.fresh = nil
	slices.SortFunc(fresh, func(a, b issue) int { return cmp.Compare(a.token, b.token) })
	var late []int64
	largest := h.largest[key]
	for _, is := range fresh {
		together := slices.ContainsFunc(st.Holders, func(o reference.Holder) bool { return o.Owner == h.largestBy[key] })
		if !slices.Contains(h.issued[is.owner], is.token) && is.token <= h.largest[key] && !together {
			late = append(late, is.token)
		}
		if !slices.Contains(h.issued[is.owner], is.token) {
			h.issued[is.owner] = append(h.issued[is.owner], is.token)
		}
		if is.token > h.largest[key] {
			h.largest[key], h.largestBy[key] = is.token, is.owner
		}
	}
	h.mu.Unlock()
	for _, token := range late {
		h.Violation("tokens: the server issues %d for %s after %d", token, key, largest)
	}
}

// ended notes that a process knows the end of its owners in a batch.
func (h *History) ended(cmds []Command, replies []Reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, c := range cmds {
		if owner, ok := owner(c); ok && c.Script == protocol.End.Name && replies[i].Err == nil {
			h.over[owner] = true
		}
	}
}

// owner returns whose a command is.
func owner(c Command) (owner string, ok bool) {
	if len(c.Args) > 0 {
		owner, ok = c.Args[0].(string)
	}
	return owner[:min(len(owner), 16)], ok
}

// returned finds owners that the server knows although their processes were told that they had ended.
// The server remembers a few of them, and the oldest makes room for another.
func (h *History) returned(key string, st reference.State) {
	h.mu.Lock()
	for _, owner := range h.buried[key] {
		if len(st.Buried) >= len(h.buried[key]) && !slices.Contains(st.Buried, owner) {
			h.pushedOut[owner] = true
		}
	}
	for _, owner := range st.Buried {
		delete(h.pushedOut, owner)
	}
	h.buried[key] = st.Buried
	var back []string
	find := func(owner, as string) {
		if h.over[owner] && !h.pushedOut[owner] {
			delete(h.over, owner) // it is told once
			back = append(back, fmt.Sprintf("%v: ghost: the server has owner %s %s %s again, whose end it has confirmed", time.Since(h.start), short(owner), as, key))
		}
	}
	for _, o := range st.Holders {
		find(o.Owner, "hold")
	}
	for _, p := range st.Queue {
		find(p.Owner, "wait for")
	}
	h.ghosts = append(h.ghosts, back...)
	h.mu.Unlock()
	for _, b := range back {
		h.Note("%s", b)
	}
}

func (h *History) executed(process int, c Command, value any, st reference.State, how string) {
	owner := "-"
	if len(c.Args) > 0 {
		text, _ := c.Args[0].(string)
		owner = short(text)
	}
	next, status := "", protocol.Status(0)
	switch c.Script {
	case protocol.Take.Name:
		h.Count(fmt.Sprint("take ", value))
	case protocol.Acquire.Name:
		r, err := protocol.ParseAcquire(value)
		if status = r.Status; err == nil && status == protocol.Granted && r.Token > 0 {
			text, _ := c.Args[0].(string)
			h.grant(text, r.Token)
		}
	case protocol.End.Name:
		r, _ := protocol.ParseEnd(value)
		status = r.Status
		if c.Args[1] == "b" {
			next = " for good"
		}
		if len(c.Args) > 3 {
			text, _ := c.Args[3].(string)
			next += " next " + short(text)
			if r.Next == protocol.Granted && r.Token > 0 {
				h.grant(text, r.Token)
			}
		}
	case protocol.Renew.Name:
		r, _ := protocol.ParseRenew(value)
		status = r.Status
	}
	h.granted(c.Key, st)
	h.returned(c.Key, st)
	h.Note("  server%s: %s %s%s of process %d on %s -> %v, %d are remembered", how, c.Script, owner, next, process, c.Key, value, len(st.Buried))
	if status != 0 {
		h.Count(c.Script + " " + status.String())
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
