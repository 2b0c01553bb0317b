package redlock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// operation is the name of a script, which a node is asked to run.
type operation string

const (
	opVote    operation = "vote"
	opAccept  operation = "accept"
	opYield   operation = "yield"
	opRenew   operation = "renew"
	opEnd     operation = "end"
	opOust    operation = "oust"
	opInspect operation = "inspect"
	opProbe   operation = "probe"
)

// command is one request to one node. Which fields count depends on the operation.
type command struct {
	op           operation
	key          string
	owner        driver.Owner
	channel      string        // of the session's pushes
	ttl          time.Duration // of the vote
	placeTTL     time.Duration // how long a place in the queue lasts unless it is refreshed
	ticket       int64         // of the place in the queue; 0: no place
	wait         bool          // the owner will wait
	old          *driver.Owner // the replaced owner, which ends with this request
	restartDelay time.Duration // how long a node without its data stays out
	trace        *driver.Trace // of a vote's request; may be nil
	token        int64         // to accept, if there is one; to give back; to renew; or up to which to oust
	create       bool          // the owner has a majority and may take a free vote
	keep         time.Duration // how long the key stays taken, from the grant on
}

// status is the result of a request at one node.
type status string

const (
	statusGranted   status = "granted"   // the vote is the owner's
	statusDenied    status = "denied"    // it is not
	statusOver      status = "over"      // the owner has ended
	statusOut       status = "out"       // the node has lost its data and stays out
	statusLost      status = "lost"      // there is no vote to renew
	statusEnded     status = "ended"     // the vote has ended with this request
	statusWithdrawn status = "withdrawn" // so has the place in the queue
	statusNotMine   status = "notmine"   // the owner had nothing, on a key that was granted before
	statusAbsent    status = "absent"    // and on one that never was
)

// answer is the state of a key at one node. That of an end has the fields up to boot, and neither
// token nor ousted if a vote has ended.
type answer struct {
	status   status
	clock    int64 // the node's time in µs
	token    int64 // the largest token ever accepted
	ousted   int64 // leases with tokens up to this were ousted; only of an end, by an owner without the vote
	boot     int64 // when the node's data began, in µs by its clock; 0: not known; bootUntold
	accepted int64 // the token accepted with the requester's vote; 0: none
	ticket   int64 // the largest ticket ever seen
	left     time.Duration
	waiting  int   // places of others
	first    bool  // the requester is the first in the queue
	firm     bool  // a vote with a token, a kept key or a queue is in the way
	taker    taker // another owner that has the vote, with a token

	// Of an inspection.
	holder  driver.Owner
	held    bool // somebody has the node's vote, or the key is kept
	since   time.Time
	kept    bool
	queue   []driver.Owner // the waiting owners
	failure []string       // of a probe: name and error of each command that failed
}

// taker is what a node tells of an owner that has its vote. The zero value is nobody.
type taker struct {
	channel string
	trace   string // as driver.Trace.Append writes it; empty if not known
}

// bootUntold is the boot of an answer that does not tell it.
const bootUntold = -1

// nextTicket is larger than every ticket that the node has seen.
func (a *answer) nextTicket() int64 { return max(a.ticket+1, a.clock) }

// reply is an answer or why there is none.
type reply struct {
	answer
	err       error     // a *driver.PermanentError if asking again is useless
	sent      time.Time // before the request left
	neverRun  bool      // the request is certainly never executed
	sentTwice bool      // a copy of the request may still be executed
}

// mayRunLate reports whether a copy of the request may be executed after this reply.
func (r *reply) mayRunLate() bool { return r.sentTwice || r.err != nil && !r.neverRun }

// wire sends commands to one node. It is safe for concurrent use.
type wire interface {
	// name is the node's address, for people.
	name() string

	// run sends the commands as one batch, at most twice, and returns a reply to
	// each. ctx has a deadline, and asks it to return; it may take longer.
	run(ctx context.Context, cmds []command) []reply

	// listen subscribes to the channel and blocks until the subscription ends or
	// ctx does. It calls up when the node has confirmed the subscription, and
	// message with each payload, both from one goroutine.
	listen(ctx context.Context, channel string, up func(), message func(payload string)) error

	// scan looks at about limit names, and returns the keys of those that are locks' and whose
	// keys begin with prefix. It begins with cursor 0, goes on with next, and ends when that is 0.
	scan(ctx context.Context, prefix string, cursor uint64, limit int) (keys []string, next uint64, err error)
}
