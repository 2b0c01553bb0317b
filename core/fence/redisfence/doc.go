// Package redisfence keeps the largest fencing token of each key in Redis, beside the
// resource that it guards.
//
// A [Script] checks the token and runs the Lua that writes in one atomic step. A
// [Guard] only answers: for a surface, and before a resource is read whose writing is
// another step. Both keep the number under the same key, so that they know of each
// other; package fence says why both are needed.
//
//	var deduct = redisfence.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
//
//	key := "stock:" + core.Escape(sku) // as the lock has it
//	token, err := fence.For(ctx, key)
//	…
//	left, err := deduct.Run(ctx, rdb, token, []string{"units:{" + key + "}"}, 3).Int()
//	if errors.Is(err, fence.ErrStale) { … } // nothing was written
//
// It needs Redis 6.2 or later, or Valkey, and, besides what the script itself uses,
// the commands EVALSHA, EVAL, GET and SET on the fence's keys.
//
// # In a Cluster
//
// A script reaches the keys of one slot only, so that the fence's key and those of
// the resource have to share a hash tag. The fence of the lock key "stock:42" is
// "fence:{stock:42}", see [Key]; a key such as "units:{stock:42}" is in its slot. If
// the resource's keys have another tag, give [WithKey] a function that makes fence
// keys with it. Keys of different slots are refused by the server, before anything runs.
//
// # How long a number is kept
//
// For ever, unless [WithExpiry] says otherwise: one key of some 100 bytes for each
// lock key that was ever guarded. An expiry is a risk, because a fence that has
// forgotten its number admits whatever comes first, and holders that are paused,
// suspended or cut off have no time limit. It has to be longer than any of them can
// be away; days rather than minutes. Otherwise delete a fence's key when its resource
// is gone for good, and to mend one that holds a number which no store has issued.
//
// # What makes it forget
//
// FLUSHALL, and a restart without persistence, take the number with the resource if
// both are in one Redis, and the next token begins anew: a stale holder that comes
// before it gets through. A failover that loses writes loses a number together with
// the writes that it has let in, since a script is replicated as a whole. An eviction
// takes single keys: run a server of fences with maxmemory-policy noeviction, or with
// one of the volatile policies and no expiry.
//
// # Repeated calls
//
// A token that is equal to the largest is admitted: a holder may write more than
// once. So a script whose reply was lost, and which is sent again, by the caller or by
// go-redis itself (Options.MaxRetries), runs twice under the same token. The fence does
// not make it idempotent: write it so that twice is the same as once, or set
// MaxRetries to -1 and find out what has become of a call without a reply.
package redisfence
