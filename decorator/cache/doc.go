// Package cache has the stores under a cache that is refilled under a lock.
//
// Whoever misses takes the lock of the key, claims the entry with the lease's fencing
// token, loads, and puts:
//
//	entry, err := store.Claim(ctx, key, lease.Token(), ttl) // reads once more
//	value, err := load(ctx)
//	stored, err := store.Put(ctx, key, lease.Token(), value, ttl)
//
// Everybody else finds the value. The lock is there so that one process loads and the
// others wait; that no wrong value is stored does not depend on it.
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
package cache
