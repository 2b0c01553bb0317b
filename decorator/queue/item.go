package queue

import (
	"fmt"
	"time"
)

// New is an item that is to be appended.
type New struct {
	ID      string // 1 to MaxID bytes, unique within its key
	Payload []byte // at most MaxPayload bytes
	Trace   string // a W3C traceparent, or empty; at most MaxID bytes
}

// Validate returns an error if the item, or its key, is out of bounds.
func (n New) Validate(key string) error {
	switch {
	case len(key) < 1 || len(key) > MaxKey:
		return fmt.Errorf("queue: the key has %d bytes; 1 to %d are possible", len(key), MaxKey)
	case len(n.ID) < 1 || len(n.ID) > MaxID:
		return fmt.Errorf("queue: the item's ID has %d bytes; 1 to %d are possible", len(n.ID), MaxID)
	case len(n.Payload) > MaxPayload:
		return fmt.Errorf("queue: the payload has %d bytes; at most %d are possible", len(n.Payload), MaxPayload)
	case len(n.Trace) > MaxID:
		return fmt.Errorf("queue: the trace has %d bytes; at most %d are possible", len(n.Trace), MaxID)
	}
	return nil
}

// Place is where an item is in the queue of its key. It may be given to clients: in JSON it has id, sequence and ahead, and
// sequence is a string, as it may exceed what JavaScript holds exactly.
type Place struct {
	ID       string `json:"id"`              // what Status calls the item; it does not show the key
	Sequence int64  `json:"sequence,string"` // rises within the key
	Ahead    int    `json:"ahead"`           // items of the key that have not ended before it, when the store answered; 0 if it has ended
}

// ClaimRequest is what a worker asks for.
type ClaimRequest struct {
	Shard  int           // of which keys are to be named; 0 to Shards()-1. Keep and Return have keys of it alone
	Worker string        // the process, by a name that no other one has
	Max    int           // how many keys to name; 0 or more
	For    time.Duration // how long a claim lasts; a millisecond or more
	Keep   []string      // keys whose claims are prolonged
	Return []string      // keys whose claims are given up
}

// Claims is what a worker gets.
type Claims struct {
	Keys []string      // claimed for the worker
	Next time.Duration // until the next key of the shard is due, or a claim ends; negative if there is none
}

// Holder is who holds the lock of a key.
type Holder struct {
	Key    string
	Token  int64         // the fencing token of the lease; positive
	Worker string        // the process, as in ClaimRequest
	For    time.Duration // how long the claim lasts that a Begin leaves; a millisecond or more
	Grace  time.Duration // how long after the call of Begin a run may start; counts with Rules.Spacing alone
}

// Validate returns an error if h is out of bounds.
func (h Holder) Validate() error {
	switch {
	case len(h.Key) < 1 || len(h.Key) > MaxKey:
		return fmt.Errorf("queue: the key has %d bytes; 1 to %d are possible", len(h.Key), MaxKey)
	case h.Token < 1:
		return fmt.Errorf("queue: the fencing token is %d; it has to be positive", h.Token)
	case h.For < time.Millisecond || h.For > MaxTime:
		return fmt.Errorf("queue: the claim is for %v; a millisecond to %v are possible", h.For, MaxTime)
	case h.Grace < 0 || h.Grace > MaxTime:
		return fmt.Errorf("queue: the grace is %v; 0 to %v are possible", h.Grace, MaxTime)
	}
	return nil
}

// Ending is how a run has ended.
type Ending struct {
	Sequence int64 // of the item
	Attempt  int   // of the item, as Begin said
	Outcome  Outcome
	After    time.Duration // with Retry: the least pause before the next attempt
	Late     time.Duration // how long after the call of Begin the run started, at most
	Next     bool          // begin the next item, if it is due
}

// Outcome is what has become of a run.
type Outcome uint8

const (
	// Done says that the item is done.
	Done Outcome = iota
	// Retry leaves the item the first of its key, or makes it dead if its attempts are used up.
	Retry
	// Dead makes the item dead, as Rules.OnDead says.
	Dead
)

// String is the name of the value.
func (o Outcome) String() string { return name(o, "done", "retry", "dead") }

// Step is what Begin and End have found.
type Step struct {
	Item   *Item         // that was begun; nil if none
	In     time.Duration // until the key is due, if Item is nil, Left is positive and the key is not parked
	Left   int           // items of the key that have not ended, with Item
	Died   int           // items that this step has made dead
	Parked bool          // the key is parked
}

// Item is one that was begun.
type Item struct {
	ID       string // Place.ID
	Sequence int64
	Attempt  int // from 1
	Payload  []byte
	Trace    string
	Age      time.Duration // since it was appended
}

// State is what has become of an item.
type State uint8

const (
	// Waiting is the state of an item that is in the queue.
	Waiting State = iota
	// Running is that of an item of which a run was begun, and has not ended as far as the store knows.
	Running
	// Ended is that of an item of which a run ended well. Its name is "done".
	Ended
	// GivenUp is that of a dead item. Its name is "dead".
	GivenUp
)

// String is the name of the state: waiting, running, done or dead.
func (s State) String() string { return name(s, "waiting", "running", "done", "dead") }

// Status is what a store knows of an item.
type Status struct {
	State    State
	Sequence int64
	Attempts int       // that were begun, since the last Repeat
	Ahead    int       // items of the key before it that have not ended
	Ended    time.Time // when it was done or given up; zero otherwise
	Parked   bool      // it is dead, and its key waits for an operator
}

// Parked is a key that waits for an operator.
type Parked struct {
	ID       string // of its first item, which is dead
	Key      string
	Sequence int64
	Since    time.Time
	Left     int // items of the key, with the dead one
}

// Resumption is what becomes of the dead item of a parked key.
type Resumption uint8

const (
	// GoOn leaves the item dead and goes on with the next one.
	GoOn Resumption = iota
	// Drop removes the item, as if it had never been appended, and goes on with the next one.
	Drop
	// Repeat runs the item again, with all its attempts.
	Repeat
)

// String is the name of the value.
func (r Resumption) String() string { return name(r, "go on", "drop", "repeat") }

// Stats is what there is in a queue.
type Stats struct {
	Length int           // items that have not ended
	Oldest time.Duration // age of the oldest of them that is the first of its key; 0 if there is none
	Parked int           // keys
}

func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", v)
}
