// Package manager is the machine inside an engine: it queues the callers of one process for
// each key, asks the store once for all of them, hands a granted lease on from one to the
// next, renews it, and gives it back.
//
//	mgr, err := manager.Open(manager.Config{Driver: d, Capabilities: d.Capabilities(), …})
//	h, refused := mgr.Acquire(ctx, terms, "shop/stock:42", time.Second, nil)
//	…
//	refused = h.Release(ctx)
//
// # The path of a call
//
//	Acquire ─ wait ─ join ──────────────┐            one goroutine per caller
//	                                    ▼
//	       waiter ◄─────────────── line of a key     first come, first served
//	         ▲                          │ mayAsk
//	         │ serve                    ▼
//	         │                   request ─► store    one at a time for an exclusive key
//	         │                          │ granted
//	         │                          ▼
//	       Hold ◄──── decide ◄────── lease           renewed until nobody holds
//	         │           ▲              │
//	         └─ Release ─┘              └─► store    released
//
// machine.go has the structs. A call goes through manager.go, waiter.go, request.go and steps.go,
// and back through release.go. A call for several keys goes through several.go, and back through
// parting.go. Meanwhile renewer.go renews, and events.go hears the store. Those who watch are told
// by observe.go.
//
// The store grants a lease to the process. A hold is one caller's time on a lease. A share is a
// lease in mode Shared: several callers may hold it together. An exclusive lease has one hold at a
// time, and so has each lease of a semaphore.
//
// A key has a lock, with a line for each kind of use: its mode, its limit, and whether its
// callers are strict. Each strict caller has a line of its own. A line has its waiters in
// order, at most one request, and the leases of this process.
//
// # The states of a lease
//
//	granted ──► held ◄──► refreshing          renewed before the next hold, or before readers join
//	              │  ▲
//	              ▼  │ wanted again
//	          lingering                       kept although nobody holds
//	              │
//	              ▼
//	   replaced · given back · sent · lost    the line has parted from it
//
// situation.decide, in decide.go, chooses the next step of a lease and changes nothing.
// line.move, in steps.go, calls it and takes the step: when a lease was granted, when a hold ends,
// when a refresh is over, and when a caller comes who may share or reuse the lease. A lease that
// lingers is also asked about when another process is heard to wait, and when the time to linger
// is over. Nothing is decided about a lease that was lost or that Close finds.
//
// # Rules
//
//  1. The mutex of a shard guards all that belongs to its keys. No call of the store, no log and
//     no guarded call runs under it; counters of metrics and the cancelling of contexts do. Of
//     this module's mutexes only the renewer's, the releaser's, and those of a [Watcher] and an
//     [Observer] come after it.
//  2. A lease counts from before its request was sent, and is over when its deadline has passed
//     by either of two clocks, whoever looks first: the renewer, a release or a question.
//  3. A lease that was lost, a grant that comes after its own deadline, and a release that failed
//     go to the releaser. It repeats the release until the store has answered or the lease must
//     have ended there by itself.
//  4. A line of an exclusive key asks for no lease while the release of its last one is under
//     way, unless the request itself ends the old lease first (its Replace or After).
//  5. Each hold has a fencing token of its own: the lease's token times 1024, which is block, plus
//     the hold's number on the lease.
//  6. A caller is decided once: it gets a [Hold] or a [Refusal]. A caller whose context ended
//     while it was granted the key gives it back.
//  7. Close finds every lease: one that the line has parted from counts as a call until the
//     attempt to release it is over. What the releaser still has then ends with its TTL.
package manager
