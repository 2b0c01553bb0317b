package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

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

// clientWire sends commands to one node through go-redis.
type clientWire struct {
	client *redis.Client
	check  time.Duration // how long a subscription may be silent before it is pinged
}

// newClientWire uses the client's connections with other options: a context bounds every
// wait for a socket, and the client repeats nothing by itself, so that the session knows
// which commands may still be executed.
func newClientWire(client *redis.Client, timeout time.Duration) *clientWire {
	own := client.WithTimeout(timeout)
	o := own.Options()
	o.ContextTimeoutEnabled = true
	o.MaxRetries = 0
	o.ReadTimeout, o.WriteTimeout = timeout, timeout
	return &clientWire{client: own, check: timeout}
}

func (w *clientWire) name() string { return w.client.Options().Addr }

// run sends the commands, and sends those again whose connection broke: the server may have
// closed an idle connection long before.
func (w *clientWire) run(ctx context.Context, cmds []command) []reply {
	replies := make([]reply, len(cmds))
	todo := make([]int, len(cmds))
	for i := range todo {
		todo[i] = i
	}
	w.sendKnown(ctx, cmds, replies, todo)
	again := todo[:0]
	for i := range replies {
		if err := replies[i].err; err != nil && !isReply(err) && !isTimeout(err) && ctx.Err() == nil {
			replies[i].sentTwice = !neverSent(err)
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		w.sendKnown(ctx, cmds, replies, again)
	}
	for i := range replies {
		r := &replies[i]
		r.neverRun = r.err != nil && !r.sentTwice && neverSent(r.err)
		r.err = classify(r.err)
	}
	return replies
}

// sendKnown sends some of the commands by the SHA-1 of their scripts, and those that the
// server does not know again by their source.
func (w *clientWire) sendKnown(ctx context.Context, cmds []command, replies []reply, which []int) {
	w.sendOnce(ctx, cmds, replies, which, false)
	var unknown []int
	for _, i := range which {
		if err := replies[i].err; err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		w.sendOnce(ctx, cmds, replies, unknown, true)
	}
}

func (w *clientWire) sendOnce(ctx context.Context, cmds []command, replies []reply, which []int, source bool) {
	sent := make([]*redis.Cmd, len(which))
	for j, i := range which {
		s := scripts[cmds[i].op]
		verb, name := "evalsha", s.sha
		if source {
			verb, name = "eval", s.source
		}
		sent[j] = redis.NewCmd(ctx, append([]any{verb, name}, cmds[i].arguments()...)...)
	}
	var err error
	if len(sent) == 1 {
		err = w.client.Process(ctx, sent[0])
	} else {
		pipe := w.client.Pipeline()
		for _, c := range sent {
			_ = pipe.Process(ctx, c) // only queues it
		}
		_, err = pipe.Exec(ctx)
	}
	for j, i := range which {
		r := &replies[i]
		value, cerr := sent[j].Result()
		switch {
		case cerr != nil:
			r.err = cerr
		case value == nil && err != nil:
			r.err = err // a pipeline that got no connection leaves its commands untouched
		default:
			r.answer, r.err = parseAnswer(&cmds[i], value)
		}
	}
}

// listen receives on a connection outside of the client's pool.
func (w *clientWire) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	subscription := w.client.Subscribe(ctx)
	closing := sync.OnceFunc(func() { _ = subscription.Close() }) // nothing is left to be lost
	defer closing()
	stop := context.AfterFunc(ctx, closing) // ends a Receive
	defer stop()
	if err := subscription.Subscribe(ctx, channel); err != nil {
		return classify(err)
	}
	confirmed, asked := false, false
	for {
		m, err := subscription.ReceiveTimeout(ctx, w.check)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && isTimeout(err) && confirmed && !asked:
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			asked = true
			continue
		case err != nil:
			return classify(err)
		}
		asked = false
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				confirmed = true
				up()
			}
		case *redis.Message:
			message(m.Payload)
		}
	}
}

// errMalformed says that a reply is not one of the scripts'.
var errMalformed = errors.New("a reply that no script of this driver gives")

// permanentPrefixes begin the error replies, less a leading "ERR ", that the same
// command will get again until somebody changes the server or the client's options.
var permanentPrefixes = []string{
	"NOPERM",
	"NOAUTH",
	"Protocol error: unauthenticated", // in place of NOAUTH, for a command of many words
	"WRONGPASS",
	"WRONGTYPE",
	"MOVED", // the server is one of a Cluster
	"unknown command",
	"The user executing the script can't",
	"ACL failure in script", // in place of the one before, from Redis 7.2 on and from Valkey
	"invalid password",
	"Client sent AUTH",
	"AUTH ",
}

// damaged is in the error of a script that found a field which no script has written, such as a
// token that is no number: Lua says so.
var damaged = regexp.MustCompile(`user_script:\d+: (attempt to (perform|compare|concatenate|get|index) |bad argument )`)

// classify wraps an error of the client library or of a reply's parser: in a
// *driver.PermanentError if sending the same again is useless.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, errMalformed) {
		return &driver.PermanentError{Err: err}
	}
	if isReply(err) {
		if damaged.MatchString(err.Error()) {
			return &driver.PermanentError{Err: fmt.Errorf("the key's hash is damaged; find out who writes there, and delete it: %w", err)}
		}
		text := strings.TrimPrefix(err.Error(), "ERR ")
		for _, p := range permanentPrefixes {
			if strings.HasPrefix(text, p) {
				return &driver.PermanentError{Err: err}
			}
		}
		return &driver.RefusedError{Err: err}
	}
	return err
}

// isPermanent reports whether asking again is useless.
func isPermanent(err error) bool {
	p := new(driver.PermanentError)
	return errors.As(err, &p)
}

// isReply reports whether err is an error reply: the connection still works.
func isReply(err error) bool {
	re := redis.Error(nil)
	return errors.As(err, &re)
}

// isTimeout reports whether no answer came in time.
func isTimeout(err error) bool {
	t := interface{ Timeout() bool }(nil)
	return errors.As(err, &t) && t.Timeout()
}

// neverSent reports whether nothing was sent, for want of a connection.
func neverSent(err error) bool {
	op := new(net.OpError)
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrClosed)
}
