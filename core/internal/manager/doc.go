// Package manager is the machine inside an engine: it queues the callers of one process for
// each key, asks the store once for all of them, hands a granted lease on from one to the
// next, renews it, and returns it.
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
//	   replaced · returned · sent · lost       the line has unlinked it
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
//     while it was granted the key returns it.
//  7. Close finds every lease: one that was unlinked counts as a call until the
//     attempt to release it is over. What the releaser still has then ends with its TTL.
//
// # Words
//
// A caller leaves its line, or is refused. A hold ends. A lease is returned to the store, or lost;
// then its line unlinks it. A line that has nothing to do is freed.
//
// # Files
//
// In the order in which a call passes them:
//
//	types.go    the structs, which name each other
//	acquire.go  Open and Acquire: a caller joins a line, waits, and leaves it
//	line.go     the callers of a line, and the lines of a key
//	bound.go    how many callers may wait
//	request.go  the line asks the store; and what may follow a release that was sent
//	steps.go    what a line does next with its leases
//	decide.go   which step a lease takes
//	hold.go     a hold: its time, its end, and what it can be asked
//	release.go  a hold is released, alone or with others
//	lease.go    when a lease is renewed, and what the store said of it
//	renewer.go  the goroutine that renews
//	events.go   what the store says by itself
//	several.go  one call takes several keys
//	circle.go   callers who wait for each other in a circle
//	refusal.go  why a caller is refused, and what is logged of a store that fails
//	observe.go  what those who watch are told
//	closing.go  Shutdown, Close, and the goroutine that repeats releases
package manager
