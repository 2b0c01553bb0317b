package queue

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Store has queues. An implementation is safe for concurrent use, by many processes if these
// share what is behind it, and passes package queuetest.
type Store interface {
	// Open returns the queue of that name. It does no I/O. All processes that use
	// a queue should have the same rules for it. The error is one of [Rules.Validate], or
	// says what of the name the store cannot keep.
	Open(name string, r Rules) (Queue, error)
}

// Queue is one queue of a store: the items of many keys, of which those of each key
// run one after the other. Package queue says what each operation is for. Keys are any
// strings of 1 to [MaxKey] bytes. Times are by the store's clock.
//
// An error that is none of those named here says that the store did not answer, or refused:
// what was asked for may have been done or not. All methods but Resume may be called again with the
// same arguments then.
type Queue interface {
	// Append adds an item at the end of the key's queue, unless the key has an item of
	// that ID: then it returns the place of that one, and changes nothing. The error is
	// [ErrFull] if the key has Rules.MaxLength items that have not ended.
	Append(ctx context.Context, key string, n New) (Place, error)

	// Claim names up to Max keys that are due, and claims them for Worker: no
	// other Claim names them for the time of For, or until their next Begin or End says
	// otherwise. First it prolongs the claims of Worker on Keep to For from now, and gives
	// up those on Return. A key of these two that is not Worker's any more is left alone.
	Claim(ctx context.Context, r ClaimRequest) (Claims, error)

	// Begin begins the first item of the key, if it is due, and claims the key for h.For.
	// Without such an item it gives up the claim, and Step says when there will be one; the
	// token is used up then, and begins nothing any more. The error is [ErrSuperseded] if h.Token
	// is below the largest that the key has seen, or has ended a run of the key already without
	// beginning another.
	Begin(ctx context.Context, h Holder) (Step, error)

	// End records how the run of h.Token that e names has ended. If e.Next is set it goes on
	// as Begin does. Otherwise it gives up the claim. The error is [ErrSuperseded] if that
	// run is not the key's present one, nor the one that h.Token ended last.
	End(ctx context.Context, h Holder, e Ending) (Step, error)

	// Status tells of an item, by Place.ID. The error is [ErrUnknown] if there is none, or
	// it has ended and is kept no more.
	Status(ctx context.Context, id string) (Status, error)

	// Parked returns up to limit keys that are parked, those parked longest first as far as
	// each shard goes.
	Parked(ctx context.Context, limit int) ([]Parked, error)

	// Resume lets a parked key go on; id is the Place.ID of its first item. The error is
	// [ErrNotParked] if that is not the first item of a parked key, and [ErrUnknown] if there
	// is no such item.
	Resume(ctx context.Context, id string, how Resumption) error

	// Stats counts what there is in the queue.
	Stats(ctx context.Context) (Stats, error)

	// Listen calls up when it has begun to hear, and due with a shard and in how much time, 0
	// or more, a key of it is due: of every key that is due after an Append, a Resume, a
	// claim that was given up, or an End without Next. It need not tell of what Begin, and End
	// with Next, have told their caller. Keys of one shard that are due at about the same time may be
	// told of once. It blocks until ctx ends, or until it has to assume that it does not
	// hear any more, and returns why. Both functions are called by one goroutine at a time, and
	// return at once.
	Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error

	// Shards is how many parts the queue has, 1 or more. Each key is in one of them, and a Claim
	// names keys of one. It does not change.
	Shards() int
}

// TxAppender is a Queue in a database that can append in a transaction of the user's own.
type TxAppender interface {
	Queue

	// AppendTx appends as Append does, in tx, which is of the store's database: the item is
	// there once tx is committed, and never if tx is rolled back. Until tx ends, every other
	// operation on the key waits for it. So the items of a key are in the order in which their
	// transactions were committed, and within one transaction in that of the calls.
	//
	// After an error other than [ErrFull] roll tx back.
	AppendTx(ctx context.Context, tx *sql.Tx, key string, n New) (Place, error)
}

// Bounds.
const (
	MaxKey     = 1024                 // bytes of a key
	MaxID      = 255                  // bytes of an item's ID
	MaxPayload = 16 << 20             // bytes of a payload
	MaxTime    = 365 * 24 * time.Hour // of every duration
	MinKeep    = time.Second          // the least Rules.KeepFor
)

// Rules are what holds for all items of a queue.
type Rules struct {
	Spacing   time.Duration // from start to start of a key's runs; 0 is none
	Attempts  int           // runs of an item at most; 1 or more
	OnDead    OnDead        // what a dead item means for those behind it
	MaxLength int           // items of a key that have not ended; 1 or more
	KeepFor   time.Duration // for how long what has ended is kept; MinKeep or more
	KeepCount int           // ended items of a key that are kept; 1 or more
}

// Validate returns an error that says which rule cannot work, and what would be right.
func (r Rules) Validate() error {
	switch {
	case r.Spacing < 0 || r.Spacing > MaxTime:
		return fmt.Errorf("queue: Spacing is %v; use 0 to %v", r.Spacing, MaxTime)
	case r.Spacing > 0 && r.Spacing < time.Millisecond:
		return fmt.Errorf("queue: Spacing is %v; durations have units, as in 2*time.Second; the least is a millisecond", r.Spacing)
	case r.Attempts < 1 || r.Attempts > 1<<20:
		return fmt.Errorf("queue: Attempts is %d; use 1 to %d", r.Attempts, 1<<20)
	case r.OnDead > Cascade:
		return fmt.Errorf("queue: OnDead is %d; use Skip, Hold or Cascade", r.OnDead)
	case r.MaxLength < 1 || r.MaxLength > 1<<20:
		return fmt.Errorf("queue: MaxLength is %d; use 1 to %d", r.MaxLength, 1<<20)
	case r.KeepFor < MinKeep || r.KeepFor > MaxTime:
		return fmt.Errorf("queue: KeepFor is %v; use %v to %v", r.KeepFor, MinKeep, MaxTime)
	case r.KeepCount < 1 || r.KeepCount > 1<<20:
		return fmt.Errorf("queue: KeepCount is %d; use 1 to %d", r.KeepCount, 1<<20)
	}
	return nil
}

// OnDead is what a dead item means for the items behind it.
type OnDead uint8

const (
	// Skip goes on with the next item.
	Skip OnDead = iota
	// Hold parks the key until an operator calls Resume.
	Hold
	// Cascade makes all items dead that are queued behind it at that time. What comes after them may
	// have to wait until the store has removed them, which takes steps if there are many: the key is due
	// meanwhile, and a Begin removes some of them and begins nothing.
	Cascade
)

// String is the name of the value.
func (o OnDead) String() string { return name(o, "skip", "hold", "cascade") }

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

// Digest names a key without showing it: 22 characters of the URL-safe base64 alphabet, of
// the first 16 bytes of its SHA-256. Whoever can guess a key can recognise its digest.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// ItemName is a Place.ID for stores that have no shorter name of their own: the digest of the
// key, a dot, and the item's ID.
func ItemName(key, id string) string { return Digest(key) + "." + id }

// SplitName returns the parts of an [ItemName]. ok is false if it is none.
func SplitName(name string) (digest, id string, ok bool) {
	digest, id, ok = strings.Cut(name, ".")
	return digest, id, ok && len(digest) == 22 && id != ""
}

// What can go wrong with a queue, for errors.Is.
var (
	// ErrFull: the key has as many items as its queue may have.
	ErrFull error = &kind{"queue is full", told{Code: "QUEUE_FULL", HTTP: 429, GRPC: 8, Again: true, Text: "too many requests of this kind are waiting already"}}
	// ErrItem: what is to be queued cannot be encoded, or is out of bounds.
	ErrItem error = &kind{"item cannot be queued", told{Code: "QUEUE_ITEM", HTTP: 413, GRPC: 3, Text: "the request cannot be queued: it is too large, or cannot be encoded"}}
	// ErrUnknown: there is no such item, or it has ended and is kept no more.
	ErrUnknown error = &kind{"queue item unknown", told{Code: "QUEUE_ITEM_UNKNOWN", HTTP: 404, GRPC: 5, Text: "there is no such item, or it is not kept any more"}}
	// ErrNotParked: the item is not the first of a parked key.
	ErrNotParked error = &kind{"queue item is not parked", told{Code: "QUEUE_NOT_PARKED", HTTP: 409, GRPC: 9, Text: "the item does not wait for an operator"}}
	// ErrSuperseded: a larger fencing token has come to the key, or the run has ended.
	ErrSuperseded = errors.New("queue run superseded")
	// ErrDamaged: the store has lost a part of a queue, most likely by eviction.
	ErrDamaged error = &kind{"queue has lost data", damaged}
	// ErrUnavailable: the store does not answer, or refuses. Stores return their own errors
	// then, and what is made of them wraps this one.
	ErrUnavailable error = &kind{"queue unavailable", unavailable}
)

var (
	unavailable = told{Code: "QUEUE_UNAVAILABLE", HTTP: 503, GRPC: 14, Text: "the request cannot be queued at present"}
	damaged     = func() told { r := unavailable; r.Log = true; return r }()
	tooLate     = told{Code: "DEADLINE_EXCEEDED", HTTP: 504, GRPC: 4, Text: "the request's time ran out before it was queued"}
	cancelled   = told{Code: "CANCELLED", HTTP: 499, GRPC: 1, Text: "the request was cancelled before it was queued"}
)

// told is what clients are told of an error: a reason.Own of package core/reason, which this package does without.
type told = struct {
	Code, Text string
	HTTP       int
	GRPC       uint32
	Again, Log bool
	After      time.Duration
}

// kind is one of the errors above that clients may be told of.
type kind struct {
	text   string
	reason told
}

func (k *kind) Error() string { return k.text }

// Reason is what clients are told.
func (k *kind) Reason() told { return k.reason }

// Error says what was attempted with a queue, and what went wrong. Its text has neither keys
// nor items nor what the store said, so it may be shown.
type Error struct {
	Op         string        // "enqueue", "status", "parked", "resume", "work"
	Queue      string        // its name
	Kind       error         // one of the errors above, a context's, or sql.ErrTxDone
	Detail     string        // what was wrong; may be empty
	RetryAfter time.Duration // with ErrFull, when there may be room; 0 otherwise
	Cause      error         // may be nil
}

// Error describes the failure in one line. It is "<nil>" for a nil e.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	text := fmt.Sprintf("queue %s %q: %v", e.Op, e.Queue, e.Kind)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns those of Kind and Cause that are not nil. It returns nil for a nil e.
func (e *Error) Unwrap() (all []error) {
	if e == nil {
		return nil
	}
	for _, err := range []error{e.Kind, e.Cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Reason is what clients are told of the error: see package core/reason. It is the zero value if that is nothing.
func (e *Error) Reason() told {
	if e == nil {
		return told{}
	}
	var k *kind
	switch {
	case errors.As(e.Kind, &k):
		r := k.reason
		if r.Again {
			r.After = max(e.RetryAfter, 0)
		}
		return r
	case errors.Is(e.Kind, context.DeadlineExceeded):
		return tooLate
	case errors.Is(e.Kind, context.Canceled):
		return cancelled
	}
	return told{}
}
