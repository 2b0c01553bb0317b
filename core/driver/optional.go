package driver

import (
	"context"
	"time"
)

// Pooled is an optional interface of a [Driver], found by a type assertion. A driver has it
// if it reaches its store through a pool of connections that belongs to the program. A caller
// who has a connection of that pool and takes a lock may wait in vain for another one.
type Pooled interface {
	// Uses reports whether pool, such as a *sql.DB, is that pool.
	Uses(pool any) bool
}

// Follower is an optional interface of a [Sink], found by a type assertion.
type Follower interface {
	Sink

	// TakenBy reports who holds the key that id waits for, or one of several who do, as an
	// answer of the store that was due anyway has just said. It comes before Waiting, and
	// again whenever a later answer says it. It is called only if Capabilities.Identity.
	TakenBy(id ID, holder Origin)
}

// TakenBy calls the method of that name, if the sink has it and the holder is known.
func TakenBy(s Sink, id ID, holder Origin) {
	if f, ok := s.(Follower); ok && holder.Known() {
		f.TakenBy(id, holder)
	}
}

// Hearer is an optional interface of a [Sink], found by a type assertion.
type Hearer interface {
	Sink

	// Failed reports what a try of the Acquire of id has come to that the driver repeats: the
	// store has refused, or could not be reached. If the caller's patience ends before the
	// Acquire, that is why.
	Failed(id ID, err error)
}

// Failed calls the method of that name, if the sink has it.
func Failed(s Sink, id ID, err error) {
	if h, ok := s.(Hearer); ok {
		h.Failed(id, err)
	}
}

// Promptness bounds how long the methods of [Prompt] may take: they run where nothing
// can interrupt them, and so make their caller late by as much.
const Promptness = 50 * time.Millisecond

// Prompt is an optional interface of a [Session], found by a type assertion. A session has
// it if it can often tell beforehand that an answer will not take long: because the store
// is in the process's memory, or has just answered others quickly. Engines call it on the
// goroutine of their own caller, and so save a switch to another goroutine and back.
//
// Its methods return within [Promptness], and never wait for a key to become free.
// The other methods of a Session and these may be mixed at will. now is a time of the
// engine's before the call, most often just before it: what counts from before the send
// may count from there.
type Prompt interface {
	Session

	// Begin is the first step of an Acquire; r.Replace is nil, r.After may not be. If done
	// is true, the results are those of Acquire. If it is false, the caller goes on with Acquire
	// and the same request, whose owner stays as it is: Begin may have taken its
	// place in the queue, or have had no answer. The caller must go on, with a
	// context that has ended if it gives up: what Begin has left is cleaned up then.
	Begin(r Request, now time.Time) (g Grant, done bool, err error)

	// End is the Release of one lease. If done is false, the caller goes on with
	// Release.
	End(e Ending, now time.Time) (done bool, err error)
}

// PromptAll is an optional interface of a [Session], found by a type assertion. A session has
// it if it can send requests for several keys together, so that a policy of several keys costs
// as many messages as one of a single key, at each server.
type PromptAll interface {
	Prompt

	// BeginAll is Begin for several requests, whose keys differ and which do not wait. It sets
	// begun[i] to what Begin would return for rs[i]. It returns within Promptness, also if it
	// asks several servers, and one that does not answer delays no other request's Acquire.
	BeginAll(rs []Request, now time.Time, begun []Begun)
}

// Begun is the result of a request of [PromptAll].
type Begun struct {
	Grant Grant
	Done  bool
	Err   error
}

// Lister is an optional interface of a [Session], found by a type assertion. A session has it
// if its store can name the keys that it knows, for an operator who does not know them.
type Lister interface {
	Session

	// List returns some of the store's keys that begin with prefix, which may be empty, and the
	// place to go on from: after is "" for the first page, and then Page.Next of the page
	// before, with the same prefix. A key that is held or waited for from the first page's
	// request to the last page's answer is in one page at least, however many others come and
	// go. It may be in several. Pages may have keys that are free, if the store remembers
	// them, or have just become so; [Session.Inspect] tells.
	//
	// limit is about how many keys the store is to look at, and positive: it bounds how long the
	// store is busy with one request. A page may have none of them, or more, and all of them if
	// the store cannot part them. Pages are in no order. A call changes nothing.
	List(ctx context.Context, prefix, after string, limit int) (Page, error)
}

// Page is some keys of a [Lister].
type Page struct {
	Keys []string
	Next string // where to go on; "" if this was the last page
}

// MaxGossip is how many bytes a message of [Gossip] has at most.
const MaxGossip = 16 << 10

// Gossip is an optional interface of a [Session], found by a type assertion. A session has it if
// it can pass messages between the sessions of a store on the way by which the store's pushes
// come, without a connection or a goroutine more. Engines tell each other so what their processes
// do, while somebody watches.
//
// Messages are not kept, and may be lost, come twice, or come in another order. Whoever may use
// the store can send them: a message is not believed, only shown.
type Gossip interface {
	Session

	// Listen makes the session listen to a topic, until stop is called. It does no I/O itself. A
	// session that has a way for pushes listens at once or soon; one that has none yet listens
	// from its first Acquire or Tell on, at no cost beyond what an Acquire costs anyway. A
	// second listener of a session to one topic takes the place of the first. A topic has 1 to 512 bytes, any of them.
	Listen(topic string, l Listener) (stop func())

	// Tell sends a message of at most [MaxGossip] bytes to every session that listens to the topic,
	// this one as well. It is one command of the store. No error says only that the store has it.
	Tell(ctx context.Context, topic string, message []byte) error
}

// Listener is who listens to a topic. Its functions are called while the store's pushes wait, and
// maybe before Listen or Tell has returned or after stop has: so they return soon, and call
// nothing of the session. They may be called at the same time. Neither is nil.
type Listener struct {
	// Listening says that the session listens from here on, for the first time or again. Messages
	// from before may be lost.
	Listening func()
	// Heard gets a message, which it may keep.
	Heard func(message []byte)
}

// Node is one server of a store that has several, as it was last seen. A node that was
// not asked for a while may have changed since.
type Node struct {
	Addr      string // without credentials
	Condition Condition
	Since     time.Time     // when it came to be so; zero while NodeUnknown
	Took      time.Duration // of its last answer; 0 if there was none
}

// Condition is what a node was last seen to be.
type Condition uint8

const (
	// NodeUnknown says that the node has not been asked yet.
	NodeUnknown Condition = iota
	// NodeUp says that the node answers.
	NodeUp
	// NodeSlow says that its last answer took more than half of the time it was given,
	// or that it has missed up to two in a row.
	NodeSlow
	// NodeDown says that it cannot be connected to, refuses, or has missed more.
	NodeDown
	// NodeRestartedEmpty says that it answers, and lost its data less than the largest
	// TTL ago that was asked for: leases that it had voted for may still run.
	NodeRestartedEmpty
)

// String returns the name of the condition as used in telemetry.
func (c Condition) String() string {
	switch c {
	case NodeUp:
		return "up"
	case NodeSlow:
		return "slow"
	case NodeDown:
		return "down"
	case NodeRestartedEmpty:
		return "restarted_empty"
	}
	return "unknown"
}
