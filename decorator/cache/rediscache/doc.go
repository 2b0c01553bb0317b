// Package rediscache keeps the entries of a cache in Redis, for all processes that use it,
// and announces what changes.
//
//	remote, err := rediscache.New(rdb, "shop:cache:")
//	…
//	store, err := cache.NewTiered(cache.Limits{Bytes: 64 << 20}, remote)
//
// It needs Redis 6.2 or later, or Valkey, on one server, with replicas or Sentinels, or
// in a Cluster. Reading is one round trip of plain commands, everything else one script.
//
// # What is in Redis
//
// Each entry is one string, under the prefix and its key, with a header of 63 bytes
// before the value: the claim's token and end, and the value's end and ttl. It expires when both
// have ended, so that nothing is left of an entry. A string that something else has
// written is left alone and is an error.
//
// A user of an ACL needs, if the prefix is shop:cache:, "~shop:cache:*
// &shop:cache:changes" and the commands EVALSHA, EVAL, GET, PTTL, GETRANGE, SETRANGE,
// SET, PEXPIREAT, DEL, TIME, PUBLISH, SUBSCRIBE and PING.
//
// # Clocks
//
// Only the server's clock counts. If it is set forward, values and claims end early; if
// it is set back, they last that much longer.
//
// # Lost replies
//
// go-redis sends a command again if its reply does not come (Options.MaxRetries), and a
// caller may. A copy that comes late, even after a change by another client, changes
// nothing that matters: package cache says why. The one assumption is that the network does
// not deliver a copy of a Claim after both that claim and those of larger tokens
// since have run out.
//
// # Replicas
//
// All reading is from masters. A replica can lag behind an invalidation, and would
// serve what is outdated for that time, so that clients that read from replicas are
// refused: ReadOnly, RouteByLatency and RouteRandomly of [redis.ClusterOptions]. One
// made with ReplicaOnly of [redis.FailoverOptions] cannot be told from others; its claims fail, since
// a replica takes no writes.
//
// A failover that loses writes may lose invalidations with them: what they had removed is
// back for the rest of its ttl. It may lose claims, too, and then values are
// not stored.
//
// # Announcements
//
// Every Put that stores and every Invalidate publishes the key, by PUBLISH on one channel:
// the prefix and "changes". In a Cluster, the masters pass it on to each other; a process
// subscribes at one of them, at another one if that fails. A subscription that is silent is
// pinged. Redis keeps no messages, so that what is published in a failover can be lost
// without a sign: [cache.WithMaxAge] is for that.
package rediscache
