package core

import (
	"math"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Policy says how one lock goes around one call. Only Key is required.
//
// A policy is checked when it is compiled, by [NewGuard] or at the start of
// [Engine.Do] and [Engine.Acquire]; one that cannot work is an [ErrPolicy] that
// names the field and what would be right.
type Policy struct {
	// Key is what is locked: a template such as "stock:{path.sku}" or
	// "order:{path.id:int}" where a guard renders it; a literal
	// without braces in Engine.Do and Engine.Acquire. Exactly one of Key and Keys is
	// required.
	//
	// In a template {name} is the text of a value, and {name:kind} one spelling for all
	// texts that mean the same: int, bool, time, uuid, ip, lower or ascii, as [NewGuard]
	// explains. Which names there are each surface says.
	Key string

	// Keys are the keys of a lock that takes several at once, at most 64: all or
	// none. Engines ask for all of them at once. If one is taken, they keep those
	// before it in sorted order, give the others back, wait for that one, and go on:
	// so that callers who want the same keys never wait for each other in a circle.
	// A key that comes twice counts once.
	// Wait is for all of them together, each has a token of its own, and the loss
	// of one ends the hold. TTL, MaxHold and MinHold count for each key from its
	// own grant.
	//
	// A template with a list is one key for each element of the list, as for the products
	// of a cart:
	//
	//	Keys: []string{"order:{ID}", "stock:{Items[].SKU}"}
	//
	// [NewGuard] says more. At most 64 different keys count for a call; more are an ErrKey.
	Keys []string

	// AllowEmpty leaves a template out of Keys for a call whose list is empty. False
	// is an ErrKey for such a call. If no key is left, the call runs WITHOUT A LOCK,
	// beside any holder, and its context has no lease of it. It needs a template with a
	// list.
	AllowEmpty bool

	// Name names the policy in errors, telemetry and configuration ([WithOverrides]). Empty
	// means the template, or all templates joined by plus signs; a literal key has no name unless given one, so that
	// key values do not end up in metrics.
	//
	// A template names where its values come from, so that stock:{path.sku} of a route,
	// stock:{sku} of a method and stock:{SKU} of a function lock the same keys under three
	// names. Give such policies one Name, or several, but do choose: metrics and overrides
	// go by it. An engine warns once, in the log, of keys that guards without a Name lock
	// under different templates.
	Name string

	// Mode says who may hold the key together. The zero value is Exclusive.
	// A mode that the driver does not offer is refused.
	//
	// Modes may be mixed on one key: Exclusive holds alone; Shared beside any
	// number that let others in; a Semaphore when fewer than Limit hold, whatever
	// their mode, and while it holds no more than Limit do. The readers of one
	// process share a lease and count as one. Nobody is let in past those who
	// wait, so neither readers nor writers starve.
	Mode Mode

	// Limit is the number of holders of a Semaphore, and 0 for other modes. It is
	// the same wherever a process uses the key: another one at the same time is an
	// ErrPolicy of the call. Processes that disagree, as they do while a new Limit
	// is deployed, keep to the smaller one until its holders have gone.
	Limit int

	// Wait is how long to wait for a key that is taken. Zero tries once and
	// fails at once with ErrBusy, unless [WithDefaults] says otherwise; TryOnce does so
	// whatever that says. Forever waits for as long as the context lives. The context's own end always ends the wait. The store's answer
	// counts as well: a Wait that is over before the store has said that the
	// key is taken ends in ErrUnavailable, not in ErrTimeout. Otherwise it is a
	// millisecond or more.
	Wait time.Duration

	// MaxWaiting bounds how many wait for a key: one more is refused at once with ErrFull, instead of
	// waiting for longer than its client does. Zero is no bound. It needs a Wait.
	//
	// It bounds two queues, each by itself: the callers of this process that wait for the key, whatever
	// their policies say, and the places in the store's queue. With Fairness Strict every caller has a place,
	// so that the bound holds over all processes. With Balanced all callers of a process that ask in one mode
	// share one place: each process lets so many of its own wait, and so many processes may. On redlock and
	// twinlock, whose servers have a queue each, there is the bound of each process alone. Of several Keys a
	// call waits for one at a time, and counts there.
	//
	// Who was let wait is not refused later, and one that leaves makes room. The places of a process that died
	// count until they end: within 3 seconds on Redis and in databases, and within their TTL on etcd and
	// ZooKeeper. Callers that come while the store is asked whether the key is taken may be refused when it has
	// answered.
	MaxWaiting int

	// TTL is how long the key stays taken if the process dies. While it lives
	// the lease is renewed every TTL/3. Zero means the engine's, see [WithDefaults], or
	// DefaultTTL. A TTL below
	// the driver's minimum is refused.
	TTL time.Duration

	// NoRenew ends the lease TTL after it was granted, whatever the holder
	// does.
	NoRenew bool

	// MaxHold ends the hold that long after it began: the context is
	// cancelled with ErrMaxHold and the lease is renewed no more, so that a
	// stuck call cannot hold for ever. The key stays taken until the call returns, or
	// for the rest of its TTL. Zero is the engine's, see [WithDefaults], or no bound;
	// Forever is no bound whatever that says.
	MaxHold time.Duration

	// MinHold keeps the key taken for that long after it was granted, by the
	// store's clock, even if the call ends sooner. A key that is given back because its
	// call cannot run is free at once. Zero is none.
	MinHold time.Duration

	// Linger lets the process keep the lease for that long after a release with
	// nobody waiting, as far as its TTL goes: its next acquisition of the key costs
	// nothing then. A request from another process reclaims the lease at once, by a push;
	// if that is lost, the other process waits until Linger is over.
	// A request with a Wait of zero still gets ErrBusy. It is for keys that mostly one
	// process uses. A process that dies leaves the key taken for the rest of the TTL.
	// Zero is none. It goes with Exclusive and Balanced, without MinHold.
	Linger time.Duration

	// Reentrant lets a call that already holds the key, as its context shows,
	// take it again: counted, with the same token, without the store. The
	// lease then ends with its last use. False returns ErrDeadlock at once.
	Reentrant bool

	// Tokens is the weakest fencing-token guarantee that this policy accepts, see
	// [Lease.Token]: DurableTokens for a resource that must never refuse the rightful
	// holder nor accept an earlier one, whatever befalls a server of the store. A
	// driver that promises less is refused. The zero value asks for none.
	Tokens Strength

	// Fairness is the order in which callers of several processes are served. It
	// is the same wherever a process uses the key: another one at the same time is
	// an ErrPolicy of the call.
	Fairness Fairness

	// Standby says that callers stand by for the key, as the candidates for a leader do, and do not wait
	// for a call to end. A page shows them apart from those who wait, and the log does not say of a
	// hold that it goes on for very long while they do.
	Standby bool

	// Release says when a release returns: Confirmed, the zero value, when the store
	// has answered, or Sent, when the release has left the process.
	Release ReleaseMode
}

// ReleaseMode says when a release returns.
type ReleaseMode uint8

const (
	// Confirmed waits for the store's answer: a nil error says that the lock was held
	// until the release.
	Confirmed ReleaseMode = iota
	// Sent saves the round trip. The release returns once it has left the process, or
	// after 10 ms if the store cannot be reached, ahead of any later grant of the key to
	// this engine. Its error says only what the process knew by then. A lease that had
	// been lost before, or a store that could not be reached, goes to telemetry and to the
	// log. The release is repeated as any other until the store has answered; Close waits
	// for it.
	//
	// On Redis a process that ends right after has told the server. A Cluster's client without
	// ContextTimeoutEnabled says so just before it writes, and other stores do not say when
	// a request has left (Capabilities.Written in core/driver): there it may leave the key
	// taken for the rest of its TTL.
	Sent
)

// String is the mode's name.
func (m ReleaseMode) String() string {
	switch m {
	case Confirmed:
		return "confirmed"
	case Sent:
		return "sent"
	}
	return "unknown"
}

// Mode says who may hold a key together.
type Mode = driver.Mode

// The modes of a lock.
const (
	Exclusive = driver.Exclusive // one holder
	Shared    = driver.Shared    // the read side of a read-write lock
	Semaphore = driver.Semaphore // up to Policy.Limit holders
)

// Strength says how far the promise of rising fencing tokens goes.
type Strength = driver.Strength

// The promises, each more than the one before.
const (
	NoTokens      = driver.NoTokens      // there may be no tokens
	ClockTokens   = driver.ClockTokens   // tokens rise also if the store loses its data, unless its clock goes back
	DurableTokens = driver.DurableTokens // tokens rise whatever happens to a single server
)

// Fairness is the order in which callers of several processes are served.
type Fairness uint8

const (
	// Balanced serves callers of one process first come first served and
	// processes in turn. A process hands the key on to its own callers without
	// the store, a bounded number of times as soon as another process waits.
	Balanced Fairness = iota
	// Strict serves all callers of all processes first come first served. Every
	// caller has a place of its own in the store's queue, and the key goes
	// through the store each time: on a key that one process uses much, that is
	// slower by the time of the round trips. Each reader has a lease of its own, and
	// counts for itself beside a semaphore. It is refused by drivers that cannot.
	Strict
)

const (
	// DefaultTTL is the TTL of a policy that states none.
	DefaultTTL = 30 * time.Second

	// Forever as a Wait waits for as long as the context lives, and as a MaxHold is no bound.
	Forever time.Duration = math.MaxInt64

	// TryOnce as a Wait fails at once with ErrBusy, also where [WithDefaults] has a Wait.
	TryOnce time.Duration = math.MinInt64

	// MaxTTL is the largest TTL, MaxHold, MinHold and Linger.
	MaxTTL = 365 * 24 * time.Hour

	// MaxLimit is the largest Limit of a Semaphore.
	MaxLimit = 1 << 16

	// MaxKeys is how many keys a lock has at most: elements of Keys, and different keys of
	// one call.
	MaxKeys = 64

	// MaxKeyLength is the largest length of a rendered key in bytes.
	MaxKeyLength = 1024
)
