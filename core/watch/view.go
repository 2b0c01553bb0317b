package watch

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/observe"
)

// Limits of what a [View] has. What is left out is counted in View.Dropped.
const (
	MaxKeys      = observe.MaxKeys    // 256 keys
	MaxPolicies  = 256                // policies
	MaxProcesses = 128                // processes
	MaxEvents    = observe.Events     // the latest 50 events of a key
	MaxCallers   = observe.MaxCallers // 16 holders of a key, and likewise waiters, of each process
	MaxSettings  = 8                  // groups of processes that agree on a policy
	MaxTogether  = 128                // of all processes, those of this one always among them
)

// View is what a [Watcher] knows at one moment. It is the caller's own: nothing changes it later.
type View struct {
	// At is when the view was made, and Since when this process began to record: nothing that
	// ended before is in it. Both are by this process's clock, as are all times of a View.
	At, Since time.Time

	// Window is what Counts are of: the time before At, or since Since if that is shorter.
	Window time.Duration

	// Alone says why other processes, or some of them, are not shown; it is empty if all are
	// that can be reached. It is a sentence for a person.
	Alone string

	// Store is what the store is, and how calls of this process find it.
	Store Store

	Processes []Process // this one first, then by identity
	Keys      []Key     // who waits longest first, then the busiest
	Policies  []Policy  // the busiest first

	// Dropped is how many keys are in use, or were lately, and are not in Keys, as far as that
	// is known: they are over a limit of this process or of the one that uses them.
	Dropped int
}

// Store is the store of the engines of a namespace.
type Store struct {
	Driver    string // "redis", say
	Namespace string // may be empty
	Address   string // where it is, as the driver says; may be empty

	// Failing is since when calls of this process have failed; zero if the latest has not. Refuses
	// tells a store that answers that it will not, as one that is read-only does, from one that does
	// not answer. Fault is what the latest call came to, for an operator: it has no credentials.
	Failing time.Time
	Refuses bool
	Fault   string
}

// Process is an engine in the namespace: one of this or of another process.
type Process struct {
	// Identity is what the process is called, see [core.WithIdentity]. Two may have the same.
	Identity string
	// Instance tells engines apart: a random name of 16 characters, 0 to 9 and a to f.
	Instance string
	// Self is true for the engine that watches.
	Self bool

	// Heard is when the process was last heard of.
	Heard time.Time
	// Gone is when the process was last heard of, if it has closed its engine or was silent for
	// longer than 10 s: it was killed, stopped or cut off. Otherwise it is zero. A process that is
	// gone stays in the view for 5 minutes, and is back as soon as it is heard again.
	Gone time.Time
	// Closed tells an engine that said that it was closed from one that fell silent. If it
	// reports again, somebody else had said so.
	Closed bool

	Started time.Time // when the process began
	Version string    // the version of its program's module or source; empty if it was built without one

	Held    int // holds of the process, and leases that it keeps without a holder
	Waiting int // callers of the process that wait
	Dropped int // keys that its report left out, since it had too many
}

// Counts are how often something happened in the [View.Window].
type Counts struct {
	Taken     int64 // callers who got the lock
	HandedOff int64 // of those: within their process, without the store
	Released  int64 // holds that ended well
	Renewed   int64 // renewals of leases by the store
	Lost      int64 // holds that ended before their release: core.ErrLost and core.ErrMaxHold
	Refused   int64 // callers who did not get it: core.ErrBusy, a cancelled context and others
	TimedOut  int64 // callers who did not get it in time: core.ErrTimeout, or their context's deadline

	Unavailable int64 // callers who did not get it because of the store: core.ErrUnavailable

	// Rate is how many locks were taken per second, over the last minute.
	Rate float64
}

// Key is what is known of a key.
type Key struct {
	Key      string   // as locked, without the namespace
	Policies []string // names of the policies that use it, as far as seen, sorted

	Holders []Holder // the longest first
	Waiters []Waiter // the longest first
	Holding int      // holders in all, also those that Holders leaves out
	Waiting int      // callers who wait in all, also those that Waiters leaves out

	// Store is what the store said of the key, and is set by [Watcher.Key] only. Its Waiting is the
	// number of places in the store's queue.
	Store *core.KeyState

	Counts Counts
	Waits  []Bucket // the oldest first, without gaps
	Events []Event  // the oldest first, at most [MaxEvents]
}

// Policy is what is known of the policies of one name.
type Policy struct {
	Name string // may be empty
	// Settings are those in force: one, if the processes that use the policy agree. They differ while a
	// release or a change of configuration reaches one process after the other. At most [MaxSettings],
	// those that most processes have, and those of this process in front.
	Settings []Settings
	Counts   Counts
	Waits    []Bucket // the oldest first, without gaps
}

// Settings are what a policy comes to in a process, with the engine's defaults and a configuration's overrides.
type Settings struct {
	Mode    core.Mode
	Limit   int           // of a Semaphore; 0 for other modes
	Wait    time.Duration // 0 tries once; core.Forever has no end
	TTL     time.Duration
	MaxHold time.Duration // 0 is no bound
	Strict  bool          // callers are served in one order over all processes

	Overridden []string // the fields that [core.WithOverrides] sets: "Wait", say
	Self       bool     // they are those of this process
	Processes  int      // how many have them
}

// Bucket is about those who got a lock, or gave up, in a short time.
type Bucket struct {
	Start   time.Time
	Length  time.Duration
	Callers int64         // who got the lock or gave up then
	Total   time.Duration // that they had waited, together
	Longest time.Duration // that one of them had waited
}

// Holder is one caller who holds a key, or a lease that its process keeps without one.
type Holder struct {
	Identity string // of its process
	Instance string // of its process
	Self     bool   // it is a caller of the engine that watches

	Policy string
	Mode   core.Mode
	Limit  int  // of a Semaphore; 0 for other modes
	Idle   bool // nobody holds: the process keeps the lease for [core.Policy].Linger

	Token     int64     // the fencing token; 0 if the driver has none
	Since     time.Time // when the hold began
	Until     time.Time // when it ends unless it is renewed: what is left of the TTL is Until - At
	Renewals  int       // of the lease
	HandOffs  int       // holds of the process on the same lease before this one
	Contended bool      // another process is known to wait

	// TraceID and SpanID name the span of its acquisition; zero if that was not sampled.
	TraceID trace.TraceID
	SpanID  trace.SpanID
}

// Waiter is one caller who waits for a key.
type Waiter struct {
	Identity string // of its process
	Instance string // of its process
	Self     bool   // it is a caller of the engine that watches

	Policy  string
	Mode    core.Mode
	Since   time.Time
	Wait    time.Duration // how long its policy lets it wait; core.Forever has no end
	Standby bool          // it stands by, as [core.Policy].Standby says, and waits for no call to end

	// TraceID and SpanID name the span of its acquisition; zero if that was not sampled.
	TraceID trace.TraceID
	SpanID  trace.SpanID
}

// Kind is what happened to a key.
type Kind uint8

// The kinds of event.
const (
	Taken       = Kind(manager.EventTaken)       // a caller got the key from the store, or joined those who hold
	HandedOn    = Kind(manager.EventHandedOn)    // a caller got the key within its process, without the store
	Released    = Kind(manager.EventReleased)    // a hold ended well
	Renewed     = Kind(manager.EventRenewed)     // the store renewed a lease
	Lost        = Kind(manager.EventLost)        // a hold ended before its release, by core.ErrLost or core.ErrMaxHold
	Refused     = Kind(manager.EventRefused)     // a caller did not get the key
	TimedOut    = Kind(manager.EventTimedOut)    // a caller did not get the key in time
	Unavailable = Kind(manager.EventUnavailable) // a caller did not get the key because of the store
)

// String returns the kind in a word or two, such as "taken".
func (k Kind) String() string { return manager.Kind(k).String() }

// Event is something that happened to a key.
type Event struct {
	At       time.Time
	Kind     Kind
	Identity string // of the process
	Instance string // of the process
	Policy   string
	Token    int64         // of the hold; 0 if there was none
	Waited   time.Duration // of Taken, HandedOn, Refused, TimedOut and Unavailable
}
