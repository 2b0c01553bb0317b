package manager

import (
	"context"
	"crypto/rand"
	"hash/maphash"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// The structs of the machine name each other, so they are all here. Their methods are in the
// other files: see the package comment for the order to read them in.

// Manager takes and keeps locks in one store, for the callers of one process. It is safe for
// concurrent use.
type Manager struct {
	Config
	session driver.Session
	prompt  driver.Prompt    // session, if it is one; otherwise nil
	all     driver.PromptAll // the same
	pooled  bool             // the driver is a driver.Pooled

	seed     maphash.Seed
	shards   [64]shard
	renewer  renewer
	releaser releaser
	held     atomic.Int64 // holds, and leases that linger

	observer atomic.Pointer[Observer] // nil: nobody watches

	circles circles
	outage  outage
	life    lifetime
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	calls   sync.WaitGroup // to the store, on behalf of lines
	workers sync.WaitGroup // the other goroutines
}

// shard has a part of the keys, and the mutex that guards them.
type shard struct {
	mu    sync.Mutex
	locks map[string]*lock
	spare []*lock // for the next keys
	steps uint64  // counts the beginnings of requests and the store's words that a key is taken, to order them
	owners
}

// lock is a key that this process has to do with: the lines of its callers, one for
// each kind of use. It is guarded by the mutex of its shard, which uses it again for
// another key when its last line has been dropped. Leases and waiters may still refer to
// a line that was dropped. They use only its manager and its shard, which do not change.
type lock struct {
	key     string
	lines   *line
	waiting int32 // callers in all lines
	patient int32 // of those: who wait while the key is taken
	unsure  bool  // one was let in before it was known that the key is taken: see bound
	sent    int32 // releases of all lines that were sent and not answered
	single  line  // memory for the first line
}

// line is one kind of use of one key in this process: the callers that want it, in
// order, and how the process stands with the store about it. Everything in it is
// guarded by the mutex of its shard.
//
// Of an exclusive key at most one of asking, leases and ending is there at a time:
// the store is being asked for a lease, the process has one, or it is returning
// one. The exception is a release that was sent: the next request may follow it, see
// request.go. Of a semaphore the process has a lease for each of its holders. Of a shared
// key all its readers join one lease while nobody else waits; once others do, it asks
// for the next. advance takes the next step.
type line struct {
	manager *Manager
	shard   *shard
	lock    *lock
	next    *line // of the lock
	kind
	lineState
}

// kind is what the callers of a line have in common.
type kind struct {
	limit  int32 // of a Semaphore
	mode   driver.Mode
	strict bool // each caller has a line of its own
}

// lineState is what changes of a line.
type lineState struct {
	first, last *waiter
	asking      *request
	leases      *lease   // linked
	held        int32    // how many leases
	returning   int32    // leases that are being returned
	sent        *lease   // of those, linked: a request may still follow their releases, see request.go
	followed    int32    // of those: how many a request has followed
	patient     int32    // callers who wait while the key is taken
	trouble     *trouble // nil: the store has answered
	lastHeld    instant  // when the key was last known to be taken, before the present request or lease
}

// waiter is a caller in the line. Once decided, either hold or refusal is set.
type waiter struct {
	line       *line
	prev, next *waiter
	terms      *Terms
	since      time.Time
	tries      bool          // it would not wait, whatever its terms say
	begins     bool          // its caller begins the line's request
	letIn      bool          // it was found that MaxWaiting leaves room for it
	ready      chan struct{} // gets one element once decided; nil if that was before anybody had to wait
	hold       *Hold
	refusal    *Refusal

	trace  *driver.Trace  // of its acquisition; nil if that is not sampled
	behind *driver.Origin // who held the key when that was first known; nil if trace is
}

// request asks the store for a lease. Whoever is first in the line when the lease is granted
// gets it. It is guarded by the mutex of its line's shard.
type request struct {
	driver.Request
	ctx      context.Context // nil while a caller begins it
	end      context.CancelFunc
	began    uint64 // shard.steps when it began
	queuedAt uint64 // shard.steps when the store said that the key is taken; 0 if it has not
	unwanted bool   // nobody wants it any more
	follows  *lease // whose end is After; nil if there is none

	failed    error         // what its latest try has come to, which the driver repeats; nil if it has not said
	contended bool          // others wait, as a push said that came before the grant
	lost      bool          // the lease has ended, as a push said that came before the grant
	lostUpTo  int64         // leases with tokens up to this were dropped meanwhile; 0: none
	holder    driver.Origin // of the key, as the store said last; zero if it has not said
}

// trouble is what has failed between a line and the store since the store last answered.
type trouble struct {
	failures int   // attempts in a row
	fault    error // of the latest attempt that says what is wrong
}

// lease is what this process has been granted by the store. Callers hold it one
// after the other, or together if it is a share. It is guarded by the mutex of its
// line's shard, but for the renewer's own entry.
type lease struct {
	line *line
	next *lease // of the line
	driver.ID
	Ref      string
	Token    int64
	Deadline time.Time
	hold     *Hold         // who hold, linked; nil while the process decides on the next one
	single   Hold          // memory for the first hold
	length   time.Duration // the longest TTL that it was asked or renewed for

	// heardAt is how old contended is. If contended is true: when the process first heard of it, or
	// last during a renewal. If it is false: when the request was sent whose answer said so; 0 if
	// only a push said so.
	heardAt instant

	renewAt instant
	entry   entry

	lingers instant // until when it is kept although nobody holds; zero if it is not

	leeway     millis // how much before renewAt it may be renewed, together with others
	renewals   int32
	handoffs   int16 // holds on this grant, less one
	asks       int16 // how many calls of Hold.Ask await their answers
	unlinked   bool  // it is no longer the line's: see unlink
	contended  bool  // another process is known to wait
	closed     bool  // nobody joins those who hold
	lowered    bool  // from an exclusive lease to a share
	renewing   bool
	refreshing bool // it is being renewed before it is handed on
	sent       bool // its release was sent, and nobody waited for the answer
	followed   bool // a request follows that release
}

// Hold is one caller's time with the lock, from grant to release or loss. It is safe for
// concurrent use. It has one handle that is to be released, and one more for each nested use.
type Hold struct {
	// lease, terms and number never change, nor does since once the caller has the hold. The
	// mutex of the line's shard guards all else.
	lease *lease
	next  *Hold // of the lease
	terms *Terms
	since instant

	uses    int32  // handles that are not released
	number  int16  // among the holds on the lease, from 0
	over    bool   // released, or ended
	told    bool   // the log has said that it is held for long while others wait
	ended   Reason // why it ended before its release
	extras  *extras
	watches *Watch // linked
	span    signals.Span
}

// extras is what few holds have.
type extras struct {
	end   time.Time     // of one that is not renewed: when it is over; otherwise zero
	trace *driver.Trace // of its acquisition; nil if that is not sampled
	done  chan struct{} // closed when the hold ends; nil: nobody has asked for it
	own   *Contention   // nil: nobody has asked for it
	tell  []*Contention // that are to be told
}

// Watcher is told of the end of a hold: why, or 0 for a release. It is called under the lock
// of the hold's shard, and so takes no lock but its own.
type Watcher interface{ Ended(why Reason) }

// Watch is a watcher's place at its hold. It belongs to one hold, once.
type Watch struct {
	watcher    Watcher
	prev, next *Watch // of the hold
}

// renewer renews leases and ends those whose time is over, with one goroutine for
// all of them. It keeps a heap of when each lease next needs attention, and
// renews in batches what is due at about the same time.
type renewer struct {
	manager *Manager
	kick    chan struct{}

	mu     sync.Mutex
	heap   agenda
	wakeAt instant
}

// agenda is a heap of leases by their time.
type agenda []*lease

// entry is a lease's place in the agenda, guarded by the renewer's mutex.
type entry struct {
	at    instant
	early millis // how much sooner than at it may be attended, if others are
	index int32  // in the heap, from 1; 0 if it is not there
}

// releaser releases leases in the background: those whose release found the store
// out of reach, and those that were lost, which the store may still count as
// held. It goes on until the store has answered, or the lease has ended there by
// itself.
type releaser struct {
	manager *Manager
	kick    chan struct{}
	mu      sync.Mutex
	pending []pendingRelease
}

type pendingRelease struct {
	driver.Ending
	until time.Time
}

// outage logs once when the store goes away or refuses, with the cause, and once when it is back,
// however many calls find it so.
type outage struct {
	trouble atomic.Bool // since is not zero

	mu    sync.Mutex
	since time.Time    // it has not answered; zero if it has
	fault error        // of the latest call that failed
	said  condition    // in the latest line
	at    [3]time.Time // the latest line of each condition
}

// condition is how the store is, as the manager's calls find it.
type condition uint8

const (
	answers condition = iota
	silent            // it cannot be reached, fails, or says nothing for the store timeout
	refuses           // it answers that it will not, as for lack of a right or of memory
)

// Config is what a manager is made with.
type Config struct {
	Driver       driver.Driver
	Capabilities driver.Capabilities // of Driver
	StoreTimeout time.Duration       // bounds each call of the store
	MaxWaiters   int                 // callers that wait for one key
	MaxHeld      int                 // holds at a time
	TokensAfter  int64               // is added to the store's tokens
	Identity     string              // of the process
	Logger       func() *slog.Logger // is asked at each line

	// LogKey returns a key as the log has it. Nil leaves keys out of the log.
	LogKey func(key string) string

	// Carried returns the fencing token of a key that came with ctx's request, and 0 if none did. Nil is
	// a manager whose requests bring none.
	Carried func(ctx context.Context, key string) int64
}

// Terms are a policy's settings as the manager uses them. All calls of the policy share them, and nothing
// changes them.
type Terms struct {
	Name    string // of the policy, for the log
	Signals *signals.Policy

	Mode  driver.Mode
	Limit int // of a Semaphore; otherwise 0

	Wait       time.Duration // 0 leaves as soon as the key is known to be taken; or Forever
	MaxWaiting int           // others that may wait before a caller who would; 0 is no bound

	TTL     time.Duration
	MaxHold time.Duration // 0 is no bound
	MinHold time.Duration
	Linger  time.Duration

	NoRenew bool
	Strict  bool // each caller has a place of its own in the store's queue
	Sent    bool // a release returns before the store has answered
	Standby bool // callers stand by for the key, however long that takes
}

const (
	// Forever is a Wait, and a caller's patience, without a bound.
	Forever time.Duration = math.MaxInt64

	// longest is no shorter than any time of a policy but Forever.
	longest = 365 * 24 * time.Hour
)

// instant is a time by the process's clock in a third of the space of a time.Time, for
// what every lease has several of. The zero value is the earliest.
//
// It goes by the monotonic clock alone, unlike a deadline, whose remaining time is
// what the less favourable of two clocks says: see driver.Remaining.
type instant time.Duration

// epoch is before every instant, also by the clocks of simulations.
var epoch = time.Now().Add(-100 * longest)

// millis is a short time, in ms.
type millis int32

func inMillis(d time.Duration) millis { return millis(d / time.Millisecond) }

func (m millis) duration() time.Duration { return time.Duration(m) * time.Millisecond }

func at(t time.Time) instant { return instant(t.Sub(epoch)) }

func (m instant) add(d time.Duration) instant { return m + instant(d) }

func (m instant) since(earlier instant) time.Duration { return time.Duration(m - earlier) }

// owners draws fresh owners, several at a time: to ask for random bytes takes longer
// than to get them.
type owners struct {
	random [32 * len(driver.Owner{})]byte
	left   int // bytes at the end of random that were not used
}

func (s *owners) newOwner() (o driver.Owner) {
	if s.left == 0 {
		_, _ = rand.Read(s.random[:]) // never fails: crypto/rand ends the program instead
		s.left = len(s.random)
	}
	next := s.random[len(s.random)-s.left:][:len(o)]
	copy(o[:], next)
	clear(next) // who reads the memory later learns no secret that was given out
	s.left -= len(o)
	return o
}
