package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// acquisition is one running Acquire: the votes that its owner has and, if it waits, its
// places in the nodes' queues. Only Acquire's goroutine uses it, except for events, wake and
// the fields below mu, by which replies and pushes arrive.
type acquisition struct {
	s        *session
	r        driver.Request
	bound    time.Duration // of one attempt to reach a node
	placeTTL time.Duration // of a place in a queue
	began    time.Time
	nodes    []nodeState
	ticket   int64 // 0: none yet
	events   chan event
	wake     kit.Signal

	reportedWaiting bool      // to the sink
	told            taker     // likewise
	again           bool      // the owner may have been granted the lease, with a token of then
	bid             int64     // the token that votes are asked for with, and that none was given back with; 0: none
	proposed        []int64   // the tokens that it has made, which rise; bid among them
	splits          int       // in a row: attempts that got votes, and too few
	splitSince      time.Time // since when it holds votes, but no majority; zero: it holds none
	askedOthers     bool      // since splitSince
	rtt             time.Duration
	tries           kit.Tries // those without a majority

	mu       sync.Mutex      // taken after claims.mu, if both are held
	ctx      context.Context // of the requests
	cancel   context.CancelFunc
	pending  int    // requests without a reply
	voting   uint64 // nodes with a vote under way, a bit each
	after    []*afterVote
	askNowAt []bool // nodes to be asked at once
	returned bool   // Acquire has returned
	token    int64  // of the grant; 0: not granted
}

// afterVote is to be called when a node has answered the vote that is under way there, or when
// that has taken too long.
type afterVote struct {
	node  int
	call  func()
	timer *time.Timer
}

// maxVoteWait is how long an end waits for the answer to a vote. Of a vote that comes later the
// node is told again that it has ended.
const maxVoteWait = 20 * time.Millisecond

// maxPlace is how long a place in the queue lasts at most unless it is refreshed, which is
// done three times as often.
const maxPlace = 3 * time.Second

// nodeState is what an acquisition knows about one node.
type nodeState struct {
	asking     bool // a vote or a yield is under way; there is one at a time
	askAgain   bool // ask again when the reply has come
	answered   bool // last is the answer to the latest request
	last       answer
	err        error // why there is no answer
	fails      int   // in a row
	voted      bool
	votedAt    time.Time // when the request was sent that got the vote
	queued     bool      // the node has confirmed the place in its queue
	ackedAt    time.Time // when the request was sent that was answered last
	askAt      time.Time // when to ask again
	accepted   bool      // the proposed token
	oldEnded   bool      // the replaced lease has ended at this node
	mayKnow    bool      // the node may know the owner, now or later, so that it has to be told of the end
	mayRunLate bool      // a copy of some request may be executed after its reply
}

// event is a reply to a request of an acquisition.
type event struct {
	node   int
	op     operation
	ticket int64 // of the request
	reply
}

func (s *session) newAcquisition(r driver.Request) *acquisition {
	a := &acquisition{
		s: s, r: r, bound: s.bound(r.TTL), placeTTL: min(maxPlace, r.TTL), began: time.Now(),
		nodes:    make([]nodeState, len(s.nodes)),
		askNowAt: make([]bool, len(s.nodes)),
		events:   make(chan event, 4*len(s.nodes)), // one vote and one proposal at a time
		wake:     kit.NewSignal(),
	}
	a.tries.Tell = func(err error) { driver.Failed(s.sink, r.ID, err) }
	a.ctx, a.cancel = context.WithCancel(s.Ctx)
	return a
}

// send sends a command to a node; the reply goes to onReply.
func (a *acquisition) send(node int, c command) {
	c.key, c.owner = a.r.Key, a.r.Owner
	a.mu.Lock()
	a.pending++
	if c.op == opVote {
		a.voting |= 1 << node
	}
	a.mu.Unlock()
	a.s.ask(a.ctx, node, a.bound, []command{c}, func(rs []reply) { a.onReply(event{node, c.op, c.ticket, rs[0]}) })
}

func (a *acquisition) onReply(e event) {
	a.mu.Lock()
	a.pending--
	var after []*afterVote
	if e.op == opVote {
		a.voting &^= 1 << e.node
		after = a.takeAfter(func(w *afterVote) bool { return w.node == e.node })
	}
	returned, last := a.returned, a.pending == 0
	switch {
	case !returned:
		a.events <- e
	case last:
		a.cancel()
	}
	a.mu.Unlock()
	if returned {
		a.takeLate(&e, len(after) > 0)
	}
	for _, w := range after {
		w.call()
		if w.timer.Stop() {
			a.s.sending.Done()
		}
	}
	if returned && last {
		a.s.claims.noteVoted(a.r.Owner, a)
	}
}

// afterVote calls call, once and on another goroutine, when a node has answered the vote that is
// under way there, or after maxVoteWait. It reports false if there is none.
func (a *acquisition) afterVote(node int, call func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !contains(a.voting, node) {
		return false
	}
	w := &afterVote{node: node, call: call}
	a.s.sending.Add(1) // of the timer, as the vote under way is counted
	w.timer = time.AfterFunc(maxVoteWait, func() {
		defer a.s.sending.Done()
		a.mu.Lock()
		late := a.takeAfter(func(other *afterVote) bool { return other == w })
		a.mu.Unlock()
		for _, w := range late {
			w.call()
		}
	})
	a.after = append(a.after, w)
	return true
}

// takeAfter removes and returns what is to be called. a.mu is held.
func (a *acquisition) takeAfter(which func(*afterVote) bool) (taken []*afterVote) {
	a.after = slices.DeleteFunc(a.after, func(w *afterVote) bool {
		if which(w) {
			taken = append(taken, w)
			return true
		}
		return false
	})
	return taken
}

// takeLate undoes a vote that arrives after Acquire has returned, or adds it to the lease.
// ending says that the owner's end is sent next.
func (a *acquisition) takeLate(e *event, ending bool) {
	if e.op != opVote {
		return
	}
	if e.mayRunLate() {
		a.markLate(e.node)
	}
	switch {
	case ending, e.err != nil, e.status != statusGranted && e.ticket == 0:
	case a.token != 0 && a.s.claims.holds(a.r.Owner):
		if e.accepted != a.token {
			a.sendLease(e.node)
		}
	default:
		// The node may have executed the request after the owner's end.
		a.s.cleaners[e.node].owe(a.r.ID, 0, a.r.TTL, false)
	}
}

// markLate ends the owner once more at a node that may execute one of its requests late:
// with the lease, or now if the lease is over.
func (a *acquisition) markLate(node int) {
	if !a.s.claims.markLate(a.r.Owner, node) {
		a.s.cleaners[node].owe(a.r.ID, 0, a.r.TTL, true)
	}
}

// sendLease tells a node outside of the majority about the lease. The node votes for it if
// its vote is free, and removes the place from its queue. The lease does not depend on it.
func (a *acquisition) sendLease(node int) {
	a.s.ask(a.s.Ctx, node, a.bound, []command{{
		op: opAccept, key: a.r.Key, owner: a.r.Owner, channel: a.s.channel, ttl: a.r.TTL, token: a.token, create: true,
	}}, func(rs []reply) {
		if rs[0].mayRunLate() {
			a.markLate(node)
		}
	})
}

// askNow makes the waiting acquisition ask a node at once. It may be called from any
// goroutine.
func (a *acquisition) askNow(node int) {
	a.mu.Lock()
	a.askNowAt[node] = true
	a.mu.Unlock()
	a.wake.Set()
}

// newToken returns a token that is at least as large, and larger than all that the acquisition
// had before: those may be on their way to be given back.
func (a *acquisition) newToken(token int64) int64 {
	if n := len(a.proposed); n > 0 {
		token = max(token, a.proposed[n-1]+1)
	}
	a.proposed = append(a.proposed, token)
	return token
}

// askVote asks a node for its vote and, with a ticket, for a place in its queue. Without one a
// free vote is given with the token at once.
func (a *acquisition) askVote(node int) {
	n := &a.nodes[node]
	c := command{
		op: opVote, channel: a.s.channel, ttl: a.r.TTL, placeTTL: a.placeTTL, ticket: a.ticket, wait: a.r.Wait, restartDelay: a.s.restartDelay,
		trace: a.r.Trace,
	}
	if a.ticket == 0 {
		c.token = a.bid
	}
	if a.r.Replace != nil && !n.oldEnded {
		c.old = &a.r.Replace.Owner
	}
	n.asking, n.askAgain, n.mayKnow = true, false, true
	a.send(node, c)
}

// noteReply takes the reply to a vote or a yield.
func (a *acquisition) noteReply(e *event) {
	n := &a.nodes[e.node]
	n.asking = false
	n.mayRunLate = n.mayRunLate || e.mayRunLate()
	now := time.Now()
	if e.op == opYield {
		if n.askAgain {
			n.askAt = now
		}
		return
	}
	n.answered, n.err = false, e.err
	if e.err != nil {
		n.mayKnow = n.voted || n.queued || n.mayRunLate
		n.fails++
		n.askAt = now.Add(a.jittered(min(50*time.Millisecond<<min(n.fails, 5), a.refreshEvery())))
		return
	}
	n.oldEnded, n.fails, n.last, n.ackedAt = true, 0, e.answer, e.sent
	n.askAt = now.Add(a.jittered(a.refreshEvery()))
	a.rtt = max(a.rtt, min(now.Sub(e.sent), a.bound))
	switch e.status {
	case statusGranted:
		n.voted, n.votedAt = true, e.sent
	case statusOut:
		n.voted, n.err = false, errOut
		return
	default:
		n.voted = false
	}
	n.answered = true
	n.queued = n.queued || e.ticket != 0 && e.status != statusOver
	n.mayKnow = n.voted || n.queued || n.mayRunLate
	if e.first && !n.voted && e.left > 0 {
		// The first in the queue asks when the current vote expires.
		n.askAt = earlier(n.askAt, now.Add(e.left+time.Millisecond))
	}
	if n.askAgain {
		n.askAt = now
	}
}

// errOut says that a node has lost its data and does not vote yet, see WithRestartDelay.
var errOut = errors.New("the node has lost its data and stays out for the time of WithRestartDelay")

// refreshEvery is the time between refreshes of a place: three fit before it lapses.
func (a *acquisition) refreshEvery() time.Duration { return a.placeTTL * 3 / 10 }

// jittered returns d, changed at random by up to a fifteenth.
func (a *acquisition) jittered(d time.Duration) time.Duration {
	return time.Duration((14 + 2*a.s.jitter()) / 15 * float64(d))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// count returns the number of nodes for which is returns true.
func (a *acquisition) count(is func(*nodeState) bool) int {
	n := 0
	for i := range a.nodes {
		if is(&a.nodes[i]) {
			n++
		}
	}
	return n
}

func (n *nodeState) hasVoted() bool { return n.voted }

func (n *nodeState) isAsked() bool { return n.asking }

func (n *nodeState) hasAnswered() bool { return n.answered }

func (n *nodeState) isQueued() bool { return n.queued }

func (n *nodeState) hasAccepted() bool { return n.accepted }

func (n *nodeState) isOver() bool { return n.answered && n.last.status == statusOver }

func (n *nodeState) isFirm() bool { return n.answered && !n.voted && n.last.firm }

// yieldVotes gives back the votes of an acquisition without a majority, so that others can
// have them. again is when to ask for them next.
func (a *acquisition) yieldVotes(again time.Time) {
	for i := range a.nodes {
		if n := &a.nodes[i]; n.voted {
			n.voted, n.askAt = false, again
			n.asking, n.askAgain = true, false
			c := command{op: opYield}
			if slices.Contains(a.proposed, n.last.accepted) { // else it may be that of a grant
				c.token = n.last.accepted
			}
			a.send(i, c)
		}
	}
	a.splitSince, a.bid = time.Time{}, 0
	a.splits++
}

// await returns the next reply, or an error if the caller or the session has ended.
func (a *acquisition) await(ctx context.Context) (event, error) {
	select {
	case e := <-a.events:
		return e, nil
	case <-ctx.Done():
		return event{}, ctx.Err()
	case <-a.s.Closing:
		return event{}, driver.ErrClosed
	}
}

// unreachable is the error if fewer nodes than a majority have answered.
func (a *acquisition) unreachable() error {
	var errs []error
	for i := range a.nodes {
		if n := &a.nodes[i]; !n.answered && n.err != nil {
			errs = append(errs, n.err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, &kit.SilenceError{After: a.bound})
	}
	return noMajority(len(a.nodes), a.count((*nodeState).hasAnswered), errs)
}

// origin is where the owner's request came from. Sessions of releases that did not name their
// channels have no identity.
func (t taker) origin() driver.Origin {
	_, identity, _ := strings.Cut(strings.TrimPrefix(t.channel, KeyPrefix), ":")
	return driver.Origin{Identity: identity, Trace: driver.ParseTrace(t.trace)}
}

// taker is who holds the key as most of the nodes say whose answers are known.
func (a *acquisition) taker() (most taker) {
	votes := 0
	for i := range a.nodes {
		t := a.nodes[i].taker()
		if t.channel == "" {
			continue
		}
		n := a.count(func(other *nodeState) bool { return other.taker().channel == t.channel })
		if n > votes || t.channel == most.channel && most.trace == "" {
			votes, most = n, t
		}
	}
	return most
}

// taker is who holds the key as the node says.
func (n *nodeState) taker() taker {
	if !n.answered {
		return taker{}
	}
	return n.last.taker
}

// tellTaker tells the sink who holds the key, if that is new.
func (a *acquisition) tellTaker() {
	if t := a.taker(); t != a.told && t.channel != "" {
		a.told = t
		driver.TakenBy(a.s.sink, a.r.ID, t.origin())
	}
}
