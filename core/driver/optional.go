package driver

import "time"

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
