// Package cache puts a cache before a function. One caller of all processes refills it, under a
// lock, while the others wait or take a stale value.
//
//	store := cache.NewMemory(cache.Limits{Entries: 1000}) // rediscache.New, for several processes
//	price := cache.Must(locks, core.Policy{Key: "price:{SKU}", Wait: 5 * time.Second}, store, fetchPrice,
//		cache.Policy{Expiry: 10 * time.Minute, Fresh: time.Minute})
//	p, err := price.Get(ctx, Product{SKU: "A-1"})
//
// The rendered key is that of the lock and of the cache's entry; the store has a prefix
// of its own. What the function returns is for everybody who asks for the key, so it must
// depend on nothing but its argument.
//
// If the store is down, Get fails, or loads under the lock: there is no stampede.
// go run ./examples/cache -redis 127.0.0.1:6379 shows a stampede, and then none;
// core/lab/caches/results/caches.md compares this cache with others.
//
// # A refill
//
// Whoever finds no value joins the refill of the key that his process has under way, or
// begins one. That waits for the lock, as long as the Wait of its [core.Policy] says, and is
// woken when it is released; it looks once more whether somebody has stored a value meanwhile,
// and if not it loads, stores, and releases the lock. Every caller that has joined gets the
// value, decoded for him alone. So each process waits for a lock once, and loads of a key
// are never side by side, unless a loader's lease ends before it does.
//
// A loader that dies is replaced when its lease ends, within the TTL of the lock. One that hangs
// is by the lock's MaxHold: its context ends then, and the lock passes on a TTL later. Without a
// MaxHold its lease is renewed for as long as it takes, but what took more than a minute is
// not stored; a MaxHold says that it may take longer. A caller waits no longer than his
// own context.
//
// The function runs on a goroutine of its own, with the values of the context of the caller who
// began the refill, and the lease. Its context ends when the lease does, and when nobody
// waits any longer. If it panics, or the codec or the store does in a refill, so does every caller
// that waits. One that does not return when its lease has ended is left to itself: who comes then
// begins another refill.
//
// # What Get returns
//
// Values are as of a time after the call of Get began, but for what a [Tiered] says of
// its copies: [Func.Invalidate] beats a load that is under way. What that returns is not stored,
// and given only to those who asked before it began; the others load anew. The fencing token of
// the lock decides which of several loaders may store.
//
// An error of the function goes to every caller that has joined, and is not stored: the next one
// to ask loads again. An error that is an [ErrNotFound] is an answer, and is
// stored if [Policy.NotFound] says so.
//
// A value that cannot be decoded, as after a new release, is loaded anew and
// replaced. One that cannot be encoded, or is too large, is an [ErrValue] for all who wait
// for it, as it would be loaded for each of them again.
//
// If the store does not answer, Get fails with [ErrUnavailable], or loads under the lock and
// stores nothing, as [Policy.Down] says: one load at a time for each key, shared by
// all that a process had waiting when it began. If the lock's store does not answer, a
// stale value will do for those who may have it, and the others get its error. Nothing is
// ever loaded without the lock.
//
// # Telemetry
//
// Metrics have the Name of the lock's policy as lock.name: lock.cache.gets counts calls of Get by
// lock.outcome, which is fresh, stale, loaded or failed; lock.cache.load.duration has the
// seconds of each load by stored, unstored, store_failed, not_found, failed or panicked.
// Unstored is what was invalidated while it was loaded, or superseded. If the store fails,
// the log says so and why, once until a value is stored again.
//
// # The policy of the lock
//
// Mode is Exclusive, and the policy is not Reentrant and has no MinHold. The driver must issue fencing tokens.
// A Wait of 0 means that Get fails with [core.ErrBusy] while another process loads.
//
// # What a store is asked for
//
// Whoever misses takes the lock of the key, claims the entry with the lease's fencing
// token, loads, and puts:
//
//	entry, err := store.Claim(ctx, key, lease.Token(), ttl) // reads once more
//	value, err := load(ctx)
//	stored, err := store.Put(ctx, key, lease.Token(), value, ttl)
//
// Everybody else finds the value. A [Store] can be used so with any lock that has tokens. The
// lock is there so that one process loads and the others wait; that no wrong value is stored
// does not depend on it.
//
// # Why no outdated value is stored
//
// A value is stored only under the claim that it was loaded under, and a claim ends
// with the first of two events: somebody else's claim, and an invalidation. What is put
// has been loaded after the claim. So nothing has invalidated the key between the
// beginning of the load and the Put, and nobody has begun to load later, or the Put is
// refused. This holds for a loader that is paused for as long as it may be, for one
// whose lease is lost, and for several who load at once because the lock's store has
// failed. These are the leases of "Scaling Memcache at Facebook" (NSDI 2013, 3.2.1),
// with fencing tokens in place of random ones.
//
// A token is more than random: of two loaders the later one has the larger. A loader
// that was paused between its lock and its claim cannot take the claim from one
// who came after it. Where no larger claim stands, a small token may claim: its value
// is loaded after that claim like any other.
//
// A token that has been invalidated cannot claim again, nor can one below, for as long
// as the claim would have stood. Otherwise a copy of a Claim that the network delivers
// late, after the client has sent it once more, could bring back a claim that an
// invalidation has ended, and let in what was loaded before it.
//
// A store may lose what it has, by eviction or a restart. The claim goes with the
// value then, and a Put is refused: the value is not stored. What a store must not lose
// is an invalidation alone, as a failover to a replica that lags can: the old value is
// back, for the rest of its ttl at most.
//
// The source has to be consistent by itself: a load that begins after a commit and
// reads a replica of the database that has not heard of it stores the old value.
//
// # Stores
//
// [Memory] keeps entries in the process, for one process and for tests.
// [github.com/lockaround/lockaround/decorator/cache/rediscache] keeps them in Redis, for
// all processes that use it. [Tiered] puts a level in the process before a store that
// announces changes, such as that. Another one implements [Store] and is tested by
// [github.com/lockaround/lockaround/decorator/cache/cachetest].
//
// # Files
//
// cache.go has [Must], [New], [Func.Get] and [Func.Invalidate]; policy.go what a [Policy] and an
// [Error] say; flight.go the refill that callers of a process share; refill.go one load, under the
// lock; entry.go how values are stored; telemetry.go the metrics and the panel. store.go says what
// a [Store] does; memory.go has the one in the process, and [Limits]; tiered.go copies of another one.
package cache
