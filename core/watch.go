package core

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/internal/observe"
	"github.com/lockaround/lockaround/core/internal/queue"
)

// Watch is a look at what the engines of a namespace do at the moment, for a page or a tool that
// a person looks at: see [Engine.Watch]. It is safe for concurrent use.
type Watch struct {
	engine *Engine
	watch  *observe.Watch
}

// Limits of what a [View] has. What is left out is counted in View.Dropped.
const (
	WatchedKeys      = observe.MaxKeys      // 256 keys
	WatchedPolicies  = observe.MaxPolicies  // 256 policies
	WatchedProcesses = observe.MaxProcesses // 128 processes
	WatchedEvents    = observe.Events       // the latest 50 events of a key
	WatchedCallers   = observe.MaxCallers   // 16 holders of a key, and likewise waiters, of each process
	WatchedTogether  = observe.MaxTogether  // 128 of all processes, those of this one always among them
)

// View is what a [Watch] knows at one moment. It is the caller's own: nothing changes it later.
type View struct {
	// At is when the view was made, and Since when this process began to record: nothing that
	// ended before is in it. Both are by this process's clock, as are all times of a View.
	At, Since time.Time

	// Window is what Counts are of: the time before At, or since Since if that is shorter.
	Window time.Duration

	// Alone says why other processes, or some of them, are not shown; it is empty if all are
	// that can be reached. It is a sentence for a person.
	Alone string

	Processes []ProcessView // this one first, then by identity
	Keys      []KeyView     // who waits longest first, then the busiest
	Policies  []PolicyView  // the busiest first

	// Dropped is how many keys are in use, or were lately, and are not in Keys, as far as that
	// is known: they are over a limit of this process or of the one that uses them.
	Dropped int
}

// ProcessView is an engine in the namespace: one of this or of another process.
type ProcessView struct {
	// Identity is what the process is called, see [WithIdentity]. Two may have the same.
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
	Lost      int64 // holds that ended before their release: ErrLost and ErrMaxHold
	Refused   int64 // callers who did not get it: ErrBusy, ErrUnavailable, a cancelled context and others
	TimedOut  int64 // callers who did not get it in time: ErrTimeout, or their context's deadline

	// Rate is Taken in the last minute, each second.
	Rate float64
}

// KeyView is what is known of a key.
type KeyView struct {
	Key      string   // as locked, without the namespace
	Policies []string // names of the policies that use it, as far as seen, sorted

	Holders []HolderView // the longest first
	Waiters []WaiterView // the longest first
	Holding int          // holders in all, also those that Holders leaves out
	Waiting int          // callers who wait in all, also those that Waiters leaves out

	// Store is what the store said of the key, and is set by [Watch.Key] only. Its Waiting is the
	// number of places in the store's queue.
	Store *KeyState

	Counts Counts
	Waits  []WaitBucket // the oldest first, without gaps
	Events []KeyEvent   // the oldest first, at most [WatchedEvents]
}

// PolicyView is what is known of the policies of one name.
type PolicyView struct {
	Name   string // may be empty
	Counts Counts
	Waits  []WaitBucket // the oldest first, without gaps
}

// WaitBucket is about those who got a lock, or gave up, in a short time.
type WaitBucket struct {
	Start   time.Time
	Length  time.Duration
	Callers int64         // who got the lock or gave up then
	Total   time.Duration // that they had waited, together
	Longest time.Duration // that one of them had waited
}

// HolderView is one caller who holds a key, or a lease that its process keeps without one.
type HolderView struct {
	Identity string // of its process
	Instance string // of its process
	Self     bool   // it is a caller of the engine that watches

	Policy string
	Mode   Mode
	Limit  int  // of a Semaphore; 0 for other modes
	Idle   bool // nobody holds: the process keeps the lease for Policy.Linger

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

// WaiterView is one caller who waits for a key.
type WaiterView struct {
	Identity string // of its process
	Instance string // of its process
	Self     bool   // it is a caller of the engine that watches

	Policy string
	Mode   Mode
	Since  time.Time

	// TraceID and SpanID name the span of its acquisition; zero if that was not sampled.
	TraceID trace.TraceID
	SpanID  trace.SpanID
}

// EventKind is what happened to a key.
type EventKind uint8

// The kinds of event.
const (
	EventTaken    = EventKind(queue.EventTaken)    // a caller got the key from the store, or joined those who hold
	EventHandedOn = EventKind(queue.EventHandedOn) // a caller got the key within its process, without the store
	EventReleased = EventKind(queue.EventReleased) // a hold ended well
	EventRenewed  = EventKind(queue.EventRenewed)  // the store renewed a lease
	EventLost     = EventKind(queue.EventLost)     // a hold ended before its release, by ErrLost or ErrMaxHold
	EventRefused  = EventKind(queue.EventRefused)  // a caller did not get the key
	EventTimedOut = EventKind(queue.EventTimedOut) // a caller did not get the key in time
)

// String returns the kind in a word or two, such as "taken".
func (k EventKind) String() string { return queue.Kind(k).String() }

// KeyEvent is something that happened to a key.
type KeyEvent struct {
	At       time.Time
	Kind     EventKind
	Identity string // of the process
	Instance string // of the process
	Policy   string
	Token    int64         // of the hold; 0 if there was none
	Waited   time.Duration // of EventTaken, EventHandedOn, EventRefused and EventTimedOut
}

// Watch begins to observe what this engine does, and every engine of its namespace that can be
// reached, for a page or a tool:
//
//	w, err := locks.Watch(ctx)
//	…
//	for range w.Changed() {
//		show(w.View())
//	}
//
// What is under way is shown at once; counts, waits and events are from here on. The watch ends
// with ctx, or with the engine. While nobody watches, nothing is recorded and nothing is sent.
// Views have the keys as they are: decide who may see them. They have no owners. What other
// processes do is what they tell through the store: whoever may write there can make it up. Keys
// that are alike come in an order that tells nothing of their names.
//
// The error is an [*Error] around ErrClosed or ctx's error.
func (e *Engine) Watch(ctx context.Context) (*Watch, error) {
	const op = "watch"
	if err := e.misused(ctx, op, ""); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, e.failure(op, "", err)
	}
	w := e.hub.Watch(ctx)
	if w == nil {
		return nil, e.failure(op, "", ErrClosed)
	}
	return &Watch{engine: e, watch: w}, nil
}

// Changed returns a channel that is sent to when something has changed since the last View, a few
// times a second at most. There is one channel, for one receiver; it is closed when the watch has
// ended. The first View is due at once.
func (w *Watch) Changed() <-chan struct{} { return w.watch.Changed() }

// View returns the newest picture. After the watch has ended it is empty, and Alone says so.
func (w *Watch) View() View {
	from := w.watch.View()
	v := View{At: from.At, Since: from.Since, Window: observe.Window, Alone: from.Alone, Dropped: from.Dropped}
	for _, p := range from.Processes {
		v.Processes = append(v.Processes, ProcessView(p))
	}
	for i := range from.Keys {
		v.Keys = append(v.Keys, keyView(&from.Keys[i]))
	}
	for _, p := range from.Policies {
		v.Policies = append(v.Policies, PolicyView{Name: p.Name, Counts: Counts(p.Counts), Waits: waitBuckets(p.Waits)})
	}
	return v
}

// Key returns what is known of one literal key, which need not be in the View, with what the store
// says of it, as [Engine.Inspect] does. The errors are those of Inspect, and the KeyView has what
// the processes know all the same, unless the key is none.
func (w *Watch) Key(ctx context.Context, key string) (KeyView, error) {
	st, err := w.engine.Inspect(ctx, key)
	if errors.Is(err, ErrKey) {
		return KeyView{}, err
	}
	known := w.watch.Key(key)
	v := keyView(&known)
	if err == nil {
		v.Store = &st
	}
	return v, err
}

func keyView(from *observe.Key) KeyView {
	k := KeyView{
		Key: from.Key, Policies: from.Policies, Holding: from.Holding, Waiting: from.Waiting,
		Counts: Counts(from.Counts), Waits: waitBuckets(from.Waits),
	}
	for _, h := range from.Holders {
		k.Holders = append(k.Holders, HolderView(h))
	}
	for _, w := range from.Waiters {
		k.Waiters = append(k.Waiters, WaiterView(w))
	}
	for _, e := range from.Events {
		k.Events = append(k.Events, KeyEvent{
			At: e.At, Kind: EventKind(e.Kind), Identity: e.Origin.Identity, Instance: e.Origin.Instance.String(),
			Policy: e.Policy, Token: e.Token, Waited: e.Waited,
		})
	}
	return k
}

func waitBuckets(from []observe.Bucket) (all []WaitBucket) {
	for _, b := range from {
		all = append(all, WaitBucket(b))
	}
	return all
}

// Panel is a small table about something that uses locks, such as a queue, a job or a
// leader, for a page or a tool that shows it to operators. It holds no keys, payloads or
// secrets: who may look at it is for the page to say.
type Panel struct {
	Title   string   // what it is about, such as "serial refund"
	Columns []string // names of the columns

	// Rows are the table. Each row has a cell for each column: a string, a bool, a number, a
	// time.Time or a time.Duration; other values are shown as fmt prints them, and nil and zero
	// times as none.
	Rows [][]any

	Err error // why there is no table, if there is none; its text is shown to operators
}

// Paneler has a panel. Panel is called while somebody looks, about once in two seconds, and
// may ask a store; it returns when ctx ends. It is safe for concurrent use.
type Paneler interface {
	Panel(ctx context.Context) Panel
}
