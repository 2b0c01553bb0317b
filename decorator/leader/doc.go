// Package leader lets one process of several lead, until it resigns, ends or dies.
//
//	indexer := leader.Must(locks, core.Policy{Key: "indexer", TTL: 10 * time.Second}, index)
//	err := indexer.Run(ctx) // campaigns, leads, and campaigns again, until ctx ends
//
// # A term
//
// A term begins when the store grants the key and ends when the function has returned. Not
// before: a leader that resigns, or whose context has ended, keeps the key until its function
// is done, and no other process leads beside it. The number of a term is the fencing token of
// its lease, [Status].Term, which rises from term to term. Give it to whatever the leader
// writes to: a process that was paused for longer than the TTL may act on a term that is over,
// and only a resource that refuses smaller tokens can stop it.
//
// The context of the function ends when the lease is lost, at the latest by its deadline; at
// the policy's MaxHold; when the engine is closed; when the context of Run ends; and at
// [Runner.Resign]. [context.Cause] is core.ErrLost, core.ErrMaxHold, core.ErrClosed, the
// cause of Run's context, or [ErrResigned]. After a loss another process may lead while the
// function is still on its way out: return soon.
//
// # What ends a term, and what comes next
//
// A function that returns an error, or nil, ends its term, and the process campaigns again
// behind those who wait. Before that it pauses: after nil for the least pause, after errors in
// a row for twice as long each time, see [Pause]. A term that lasted longer than the
// longest pause counts as a good one. After Resign, and after a lease that was lost, it campaigns
// again at once. A panic goes on unchanged when the key has been released.
//
// # When the leader dies
//
// The next candidate leads within the policy's TTL and the driver's bound for a lost wake-up:
// 1 s with the TTL in most cases. Candidates wait in the store's queue, first come, first served.
//
// # The policy
//
// The key is a literal. Mode is Exclusive, Wait is zero or Forever: a candidate waits until it
// leads. NoRenew, MinHold, Linger and Reentrant are not set. MaxHold is the longest term, which lets
// others have their turn. Of the engine's defaults only the TTL counts. The key with "#observers" after it is used as well, see
// [Runner.Observe].
//
// # Files
//
// leader.go has [Must], [New], [Runner.Run] and a term; observe.go tells who leads, in whichever process; telemetry.go has the metrics.
package leader
