// Package driver is the contract between the lock engine and a store.
//
// Users of a lock need package core only; this package is for those who write
// a driver. A driver imports driver, never core, and passes the suite in
// core/drivertest, which tests each rule below.
//
//  1. Acquire is idempotent by owner: repeated after a lost reply, by the
//     driver or by its client library, it returns the same grant.
//  2. Every call returns at the latest [Promptness] after its context is done,
//     whatever the client library does. Waiting holds no pooled connection, or a
//     bounded few of a large pool.
//  3. An attempt that was given up may still have been executed. Its owner is
//     burnt: never used again, and ended at the store by a detached, bounded
//     clean-up. No ghost outlives the TTL it asked for.
//  4. Release and Renew act on their own owner only. A late one is a no-op and
//     reports [ErrNotHeld]; a release repeated because its reply was lost does
//     not. A renewal never creates a lease that has vanished.
//  5. Tokens strictly increase per key in the order of grants, as strongly as
//     [Capabilities].Tokens says: a lease that was asked for earlier and is
//     granted later has the larger one.
//  6. A wake-up may be lost; a free lock is still granted to a waiter within
//     [Capabilities].Wake.
//  7. The driver computes deadlines, from before the send: see [Deadline].
//  8. Sessions that wait for a key are served first come, first served, and a
//     newcomer does not overtake them, even if it could share the key with those
//     who hold it.
//  9. Leases that are held together end, expire and are renewed each by itself.
//
// # Files
//
// In the order in which one who writes a driver needs them:
//
//	driver.go    the interfaces, what goes through them, the errors, and how deadlines are computed
//	origin.go    where a request comes from: its process and its trace
//	optional.go  what a driver or a session may offer besides
package driver

import (
	"context"
	"errors"
	"math"
	"time"
)

// Driver is one store, as configured. It is immutable and safe for concurrent
// use, and any number of engines may share it.
type Driver interface {
	// Capabilities says what the store offers. The answer never changes.
	Capabilities() Capabilities

	// Open starts a session. It does no I/O: a store that cannot be reached
	// shows in Ping and in the first Acquire.
	Open(Config) (Session, error)
}

// Config is what an engine tells the sessions it opens.
type Config struct {
	// Sink receives what the store pushes. It is never nil.
	Sink Sink

	// StoreTimeout bounds each single attempt to reach the store, also inside
	// an Acquire that waits. It is positive.
	StoreTimeout time.Duration

	// Identity is what operators call the process; empty, or as [ValidIdentity] has it. It is
	// stored with each lease if Capabilities.Identity.
	Identity string
}

// Session is one engine's connection to a store. All methods are safe for
// concurrent use, and after Close all but Close return [ErrClosed].
type Session interface {
	// Ping reports whether the store answers and permits what the driver
	// needs. It changes nothing that another process could see.
	Ping(ctx context.Context) error

	// Acquire asks for a lease. If the key is taken it returns a [*HeldError]
	// when r.Wait is false or r.MaxWaiting are waiting, and otherwise blocks until the lease is granted:
	// the running call is the process's place in the store's queue. When ctx
	// ends it gives the place up, cleans up in the background and returns.
	//
	// [ErrPlaceLost] says that the place in the queue is gone and the caller
	// may ask again, with a fresh owner. A [*PermanentError] says that asking
	// again is useless, a [*RefusedError] that the store will not now. Any other error is a
	// store that could not be reached. A driver that asks again by itself reports each
	// failure by [Failed], and wraps the last one in what it returns when its time is over.
	// After every error the owner is burnt.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew extends leases and returns one result for each, in their order.
	Renew(ctx context.Context, rs []Renewal) []Renewed

	// Release ends leases and returns one result for each, in their order:
	// nil if the lease ended, [ErrNotHeld] if it had ended before by other
	// means, another error if the store could not be asked. The caller may
	// repeat a release until it is answered.
	Release(ctx context.Context, rs []Ending) []error

	// Inspect reports the state of a key. It changes nothing.
	Inspect(ctx context.Context, key string) (State, error)

	// Oust ends every lease of a key whose token is at most upTo, whoever has it,
	// tells their sessions by Sink.Lost, as far as they can be reached at the moment,
	// and grants the key to those who wait. No later grant has a token of upTo or less, so
	// a repeated call ends none of them. It is used only if Capabilities.Oust.
	Oust(ctx context.Context, key string, upTo int64) error

	// Close ends every call in progress and every goroutine of the session.
	// It finishes the clean-ups of given-up owners, bounded by ctx. It does
	// not release granted leases: the engine does that before. Closing twice
	// is a no-op.
	Close(ctx context.Context) error
}

// Sink receives what the store pushes to a session. Its methods are safe for
// concurrent use and do not block. Reports about an ID that the engine has
// given up are ignored, so a late one does no harm.
type Sink interface {
	// Waiting reports that the store has answered an Acquire that waits: the
	// key is taken, and id has its place in the queue. It tells a busy key
	// from a store that is silent, when the caller's patience ends.
	Waiting(id ID)

	// Contended reports whether somebody waits in the store's queue for the key of
	// the lease id. With Capabilities.Recall it also reports that somebody has asked for the
	// key and would not wait; that message may be lost. It limits hand-offs inside the
	// holding process, and makes the process give back a lease that it keeps without a holder.
	Contended(id ID, waiting bool)

	// Lost reports that the lease id has ended at the store.
	Lost(id ID, cause error)
}

// Owner is the random secret that names one request and the lease it becomes.
// Whoever knows it can end the lease, so it is never shown or logged.
type Owner [16]byte

// ID names one owner's claim on one key. The key is already namespaced and may
// hold any byte.
type ID struct {
	Key   string
	Owner Owner
}

// Mode says who may hold a key together.
type Mode uint8

// The modes of a lock.
const (
	Exclusive Mode = iota // one holder
	Shared                // the read side of a read-write lock
	Semaphore             // up to Limit holders
)

// String returns the name of the mode as used in telemetry and configuration.
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Semaphore:
		return "semaphore"
	}
	return "unknown"
}

// Request asks for a lease.
//
// An Exclusive lease is the only one of its key. Shared and Semaphore leases may be held
// together. A Semaphore's lease is granted when the key has fewer than Limit leases, of either
// of these modes; while it lasts, the key never has more than Limit leases. So if Limits differ,
// the smallest counts until its leases have ended. Nobody is granted a lease before those who
// already wait for one.
type Request struct {
	ID
	Mode  Mode
	Limit int           // of a Semaphore, at least 1; otherwise 0
	TTL   time.Duration // at least Capabilities.MinTTL
	Wait  bool          // block while the key is taken

	// MaxWaiting, if not 0, refuses a place in the queue to a request that would wait behind that many
	// others, by a HeldError that is Full. Those that have died do not count for longer than they would keep
	// the key from others. It never refuses who has a place, so that a repeated request keeps it. It is used
	// only if Capabilities.Bounds, with Wait, and not with Replace.
	MaxWaiting int

	// Replace, if not nil, is a lease of this session on the same key that
	// ends with this request: in one step where the store can, so that the
	// key is granted to ID if nobody else waits and ID queues otherwise. It
	// has ended whatever Acquire returns, or its end is the driver's to
	// clean up. Replace.Keep is 0.
	Replace *Ending

	// After, if not nil, is a lease of this session on the same key whose Release is
	// under way: it ends before this request takes effect, whichever of the two arrives first.
	// The Release still returns what has become of the lease. It is used only if
	// Capabilities.After, and never with Replace. After.Keep is 0.
	After *Ending

	// Trace, if not nil, is stored with the lease if Capabilities.Trace. It does not change.
	Trace *Trace
}

// Grant is a lease as the store granted it.
type Grant struct {
	ID
	Ref       string    // the driver's own name for it, handed back unread
	Token     int64     // 1 to 2^53-1, rising per key; 0 if Tokens is NoTokens
	Deadline  time.Time // see Deadline; carries a monotonic reading
	Contended bool      // somebody waits in the store's queue for this key, or did a moment ago
}

// Renewal asks for a lease to last TTL from now. It never shortens one.
type Renewal struct {
	ID
	Ref   string
	Token int64
	TTL   time.Duration

	// Share turns an exclusive lease into a shared one, in the same step, and
	// lets in who may share it. A lease that is shared already stays so. It is
	// used only if Capabilities.Modes has Shared.
	Share bool
}

// Renewed is the result of a Renewal. If Err is [ErrNotHeld] the lease is lost;
// any other error is a store that could not be asked, and the lease goes on
// until its deadline.
type Renewed struct {
	Deadline  time.Time // of what this renewal set
	Contended bool      // somebody waits in the store's queue for this key
	Err       error
}

// Ending is a lease that is to end.
type Ending struct {
	ID
	Ref      string
	Token    int64
	Deadline time.Time // the latest one known

	// Keep leaves the key taken, by nobody, until that long after the lease
	// was granted, by the store's clock. Zero frees it at once. The waiter who is
	// first when the lease is released has the key within 100 ms of that moment.
	// It is used only if Capabilities.Keep.
	Keep time.Duration

	// Written, if not nil, is called when the request has left the process: it would reach
	// the store also if the process ended now. It may be called more than once, or not at
	// all, and does not block. It is used only if Capabilities.Written.
	Written func()
}

// State is what Inspect found.
type State struct {
	Held      bool
	Token     int64         // of the latest grant; 0 if there was none, or none that is remembered; see Capabilities.LateTokens
	Remaining time.Duration // until the lease ends, by the store's clock
	Waiting   int           // places in the store's queue
	Holders   []Holder      // of a key that is held; nil if the driver cannot tell
	Nodes     []Node        // of a store that has several independent ones; else nil
}

// Holder is one lease of a key.
type Holder struct {
	Mode      Mode
	Limit     int           // of a Semaphore
	Token     int64         // of its grant; see Capabilities.LateTokens
	Since     time.Time     // when it was granted, by the store's clock
	Remaining time.Duration // until it ends unless it is renewed
	Kept      bool          // it has been released, and the key is kept for Ending.Keep
	Origin                  // zero if Kept
}

// Strength says how far the promise of rising tokens goes.
type Strength uint8

const (
	// NoTokens says that the store issues none, and Grant.Token is 0.
	NoTokens Strength = iota
	// ClockTokens rise for as long as the store keeps its data, and across a
	// loss of data (restart, flush, eviction, failover) unless the new
	// server's clock is behind the old one's by more than the outage took.
	// A holder that has not yet learnt of such a loss may still hand its lease
	// on within its process, with tokens that follow its own.
	ClockTokens
	// DurableTokens rise whatever happens to a single server.
	DurableTokens
)

// String returns the name of the promise.
func (s Strength) String() string {
	switch s {
	case NoTokens:
		return "none"
	case ClockTokens:
		return "clock"
	case DurableTokens:
		return "durable"
	}
	return "unknown"
}

// Capabilities says what a driver offers.
type Capabilities struct {
	Name    string        // in telemetry and errors: "redis", "memory"
	Address string        // where the store is, for an operator: "10.0.0.5:6379", say; never credentials; empty if the driver cannot tell
	Modes   []Mode        // the modes it grants
	MinTTL  time.Duration // shorter TTLs are refused when a policy is compiled
	Tokens  Strength
	Strict  bool          // queues callers in one order over all processes
	Keep    bool          // honours Ending.Keep
	Oust    bool          // offers Session.Oust, and has tokens
	After   bool          // honours Request.After
	Recall  bool          // tells the holder, by Sink.Contended, of every request that finds the key taken
	Bounds  bool          // honours Request.MaxWaiting
	Wake    time.Duration // the longest a waiter sleeps through a lost wake-up

	// Unordered says that the store has no queue: waiters ask again now and then, and any of them may be the next
	// one, or a newcomer. State.Waiting is 0, and Contended is not reported.
	Unordered bool

	// Written says that the driver calls Ending.Written, in most cases.
	Written bool

	// LateTokens says that the store may not know a lease's token until it has been renewed. State
	// and Holder have one in its place until then that was possible at the moment of the grant: no
	// larger, and by less than a second's worth smaller. Oust goes by that.
	LateTokens bool

	// Identity says that the driver stores Config.Identity with each lease, and tells it in
	// Holder, in HeldError and to a Follower. None of that costs a round trip.
	Identity bool
	// Trace says that it does the same with Request.Trace.
	Trace bool
}

// MayBe reports whether a lease with a token may be the one of which State or Holder says that
// token; see LateTokens.
func (c *Capabilities) MayBe(token, said int64) bool {
	const second = 1_000_000 // of tokens that are microseconds
	return token == said || c.LateTokens && said < token && token-said < second
}

var (
	// ErrNotHeld says that the owner does not hold the lease (any more).
	ErrNotHeld = errors.New("lease not held")

	// ErrPlaceLost says that the store has forgotten a waiting owner, after a
	// pause, a restart or a flush. A fresh owner may ask again at once.
	ErrPlaceLost = errors.New("place in the queue lost")

	// ErrClosed says that the session is closed.
	ErrClosed = errors.New("session closed")
)

// HeldError says that the key is taken and the request would not wait, or was not let wait.
type HeldError struct {
	// Full says that there was no room in the queue for a request with a MaxWaiting.
	Full bool

	// RetryAfter is how long the present lease lasts at most unless it is
	// renewed; 0 if that is not known.
	RetryAfter time.Duration

	// Holder is who has it, or one of several who do; zero if that is not known. A store of
	// several nodes may name for a moment who has just released. It is not in the text of the
	// error, which clients may see.
	Holder Origin
}

func (*HeldError) Error() string { return "held by another owner" }

// RefusedError says that the store has answered that it will not do what it was asked, for now: it
// is read-only, full or not ready. Asking again may help. An error of a store that could not be
// asked is none.
type RefusedError struct {
	Err error // not nil
}

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// PermanentError says that repeating the call cannot help: the store refuses
// it for lack of rights, or is of the wrong kind or version.
type PermanentError struct {
	Err error // not nil
}

func (e *PermanentError) Error() string { return e.Err.Error() }

func (e *PermanentError) Unwrap() error { return e.Err }

// Deadline returns when a lease must be considered over by the process that
// holds it: sent, the time just before the request left, plus ttl, less a
// margin of 1% of ttl and 2 ms for clocks of slightly different rates. The
// result carries sent's monotonic reading.
func Deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - Margin(ttl))
}

// Margin is how much sooner than its store a holder considers a lease of
// length ttl over.
func Margin(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

// Remaining returns how long it is from now to deadline, by the less
// favourable of the monotonic and the wall clock: the monotonic one stops while
// a machine is suspended. A negative result has passed.
func Remaining(deadline, now time.Time) time.Duration {
	return min(deadline.Sub(now), wall(deadline, now))
}

// wall is the time between two times by the wall clock alone, which Time.Sub goes by
// only if it has to.
func wall(deadline, now time.Time) time.Duration {
	const far = math.MaxInt64 / int64(time.Second)
	s := deadline.Unix() - now.Unix()
	switch {
	case s >= far:
		return math.MaxInt64
	case s <= -far:
		return math.MinInt64
	}
	return time.Duration(s)*time.Second + time.Duration(deadline.Nanosecond()-now.Nanosecond())
}

// Later returns the later of two deadlines. A zero time is the earliest.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
