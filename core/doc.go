// Package core puts a distributed lock around a call: it acquires a lease, waits
// its turn, renews, hands over, releases, and says when the lock was lost.
//
//	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:prod"))
//	…
//	err = locks.Do(ctx, core.Policy{Name: "report", Key: "report:daily"}, report)
//
// [New] makes an [Engine] from a driver: redislock for Redis, memlock for the memory of one
// process. A program has one engine per store. A [Policy] says what is locked and how.
// Calls are guarded by literal keys ([Engine.Do], [Engine.Acquire]), by key templates
// over a Go type ([Guard]), or by the surfaces in packages middleware, interceptor and
// decorator, which are made of guards.
//
// There is no [sync.Locker] over an engine. Its Lock has no context and no error, so nobody could
// say that the lock was not had, and its holder would never learn that the lease was lost.
//
// README.md in this folder has tables of policies, errors and telemetry. GUARANTEES.md says
// what holds in each kind of fault.
//
// # What holds
//
// Callers of one process queue for a key inside the engine, first come, first
// served. They share one request to the store, and hand the lease that it grants on
// among themselves without the store: freely while nobody else waits, and a bounded
// number of times when another process does. With a semaphore each holder has a lease of
// its own, and so has each caller if the policy's Fairness is Strict.
//
// A hold ends when it is released, when its function returns, panics or exits
// its goroutine, when the lease is lost, at MaxHold, and when the engine is
// closed. It does not end with the context of the acquisition: a request whose
// client has gone may be in the middle of its commit. When it ends early, the
// context of the guarded call is cancelled, with the cause ErrLost, ErrMaxHold or
// ErrClosed.
//
// The holder takes its lease for over at its deadline: the TTL after the request was about
// to be sent, less 1% and 2 ms. A store may grant less than the TTL to a process that has waited: such a lease
// is renewed 50 ms after the hold has begun, and has its TTL from then on. Until the deadline
// no other process is granted the key, provided that the store keeps what it has acknowledged
// and clocks run at the same rate. A process that is paused past that moment cannot know it. Only the
// resource can stop its late writes: it refuses a fencing token, [Lease.Token], below
// the largest it has seen.
//
// # Who holds together
//
// [Policy].Mode makes a lock exclusive, shared or a semaphore. Modes may be mixed on one
// key. Readers of one process join the lease that it has, as long as nobody else waits:
// one more reader costs the store nothing. Once somebody waits, new readers queue behind.
// When the process is granted a share again, all its readers that have waited for it come
// in. So neither readers nor writers starve.
//
// [Lease.Downgrade] makes a writer a reader. The other way is refused with
// ErrDeadlock, since two readers that wait to be the writer wait for each other.
//
// A policy with several Keys takes all or none of them. An operator lists keys by [Engine.Keys],
// looks at one by [Engine.Inspect], which names the process that holds it, see [WithIdentity], and takes it
// from its holder by [Engine.ForceRelease].
//
// # What an operator can see
//
// Package core/watch shows who holds and who waits, in this process and in the others of the
// namespace, and counts, waits and events from then on. While somebody watches, each engine
// reports by a message every 4 s, and at once when a caller has waited 200 ms for a key that the
// last report did not name: 30 messages a minute at most, of 16 KiB at most. An engine that has
// used them up sends the next one within 2.5 s, so a wait may show that much later. An
// engine that is silent for 10 s counts as gone. Reports end by themselves 30 s after the
// last watch. While nobody watches there are none.
//
// Other processes are shown if the driver's sessions are a driver.Gossip, as those of redislock
// and memlock are, from their first acquisition on. Otherwise, View.Alone says why only this process
// is shown. Whoever may use the store may send reports: they are shown, and nothing is decided by
// them. Processes of releases without Watch do not report; their waiters are in the store's count,
// see Watcher.Key in package core/watch.
//
// # What an operator can change
//
// Policies go by their names. [WithOverrides] replaces some of their fields by those of a
// configuration, which package policies reads from a file. [Engine.CheckOverrides] finds
// names that no policy has.
//
// # Several releases on one store
//
// Processes of different releases may use one store at the same time, and so a rolling
// deployment needs no preparation: roll out in any order, and roll back. Releases exclude each
// other if their drivers have the same version of their protocol. The names in the store say which:
//
//	redislock   la2:{shard}:key, la2:{shard}
//	redlock     lr1:l:key, lr1:q:key, lr1:boot
//	etcdlock    la1/key/
//	zklock      /lockaround-1, unless WithRoot says otherwise
//	sqllock     the tables lockaround_lock, lockaround_claim and lockaround_row
//
// Processes of two versions do not exclude each other. So a release that brings another version
// says so first in its notes, and still offers the old one. In between use package twinlock,
// whose leases are of both, as for a change from one store to another: first all processes have
// the old version, then both, then the new one alone. The same goes for a release that would
// make other keys of the same templates.
//
// While two releases share a store, what only the newer one offers is not promised to the
// processes of the older one. Settings that processes have to agree on, such as Policy.Limit,
// say themselves what happens while they differ.
//
// # Spans and metrics
//
// Each call has the spans "lock acquire", "lock hold", with the guarded call's
// own below it, and "lock release", followed by the policy's name, with the
// attributes lock.name, lock.driver, lock.mode, lock.outcome, lock.token,
// lock.wait in seconds, and error.type. Where the key was taken, the first has lock.holder and a
// link to the holder's span: see [WithIdentity]. The instruments are the histograms
// lock.wait.duration and lock.hold.duration in seconds, the counts lock.held and
// lock.waiting, and the counters lock.lost and lock.handoff; package
// [github.com/lockaround/lockaround/core/instruments] has all of them. Keys and owners
// are in none of them.
//
// # Files
//
// engine.go makes an engine and takes literal keys; guard.go takes rendered keys, and runs a call
// under its lock; key.go compiles templates. check.go checks policies and makes plans of them;
// override.go changes them. context.go puts leases into contexts; lease.go releases them.
package core
