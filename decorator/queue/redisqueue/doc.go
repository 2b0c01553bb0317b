// Package redisqueue keeps the queues of serial functions in Redis, for all processes that
// use them.
//
//	store, err := redisqueue.New(rdb, "shop:queue:")
//	…
//	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}"}, store, svc.Refund, serial.Policy{})
//
// It needs Redis 6.2 or later, or Valkey, on one server, with replicas or Sentinels, or in a
// Cluster. Every operation is one script, and one round trip. To a
// server that answers within a millisecond, operations of one process share scripts and round
// trips while others are under way.
//
// # What is in Redis
//
// A queue has shards, one unless [WithShards] says otherwise; each key is in one of them. All
// keys of a shard have one hash tag, {queue/shard} after the prefix, so that a script touches one
// slot. A Cluster needs several shards to spread a queue over its masters. Each is looked at by
// itself: with n shards, a worker looks at each of them every 5n s, beside what it hears. So keep
// them few.
//
//	…h        hash: the clock, the count of items, the key of each digest that has items, claims
//	…d …o …p  sorted sets of digests: due, oldest, parked
//	…k:…      what is known of a key: its largest token, its run, its next start
//	…q:…      list of its items
//	…i:…      hash of what has become of them
//
// The last three are of one key each, and go KeepFor after its last item has ended. What has items
// does not expire.
//
// The first four are an index. If one of them is lost, the next Claim sees it and makes the index
// anew, in steps of a few keys; items go on as before, and a claim may end early. If all four are lost at
// once, a key is found again when it is next used.
//
// No script removes more than 500 items, or 1 MiB of them and one: what dies with another under
// [queue.Cascade] is dead at once, and is removed in steps, by whoever claims the key.
// A process of an earlier release fails with the key meanwhile.
//
// A user of an ACL needs, if the prefix is shop:queue:, "~shop:queue:* &shop:queue:due:*" and the
// commands EVALSHA, EVAL, TIME, GET, SET, HGET, HMGET, HSET, HDEL, LLEN, LINDEX, LPOP, RPUSH, ZADD,
// ZREM, ZSCORE, ZCARD, ZRANGE, ZRANGEBYSCORE, PEXPIRE, PERSIST, PUBLISH, SUBSCRIBE and PING, and HSCAN
// and ZSCAN for an index that was lost.
//
// # Beside asynq
//
// asynq, which keeps no order, enqueues faster: 16 callers do 0.7 times as much here. With one item
// in each of 5,000 keys here run 0.7 times as many a second, since each takes the lock of its key. With ten
// items in each of 1,000 keys here are 2.1 times as many, and 1.3 times over four processes. An item
// that finds an idle worker starts after 2 ms, with asynq after 0.9 s. These are medians of five rounds on two
// cores; core/lab/queues has the table.
//
// # What is needed of the server
//
// Set maxmemory-policy to noeviction. With an allkeys- policy the server loses items. With a
// volatile- policy it keeps all that have not ended, and loses what is kept of idle keys: if both parts of
// that go, IDs that have ended are unknown before KeepFor is over, so that an item that is appended again
// runs again, and spacing and tokens begin anew. Where a loss shows, operations on the key fail with
// [queue.ErrDamaged] and go on doing so until somebody has looked and has deleted what is left, or, of
// an idle key, it expires: so if one of a key's three parts is gone. How much an acknowledged
// item is worth is for the server's persistence and replication to say: with appendonly and
// appendfsync everysec a crash loses a second of appends and of ends. A failover that loses writes
// loses items with them, or brings back items that had ended, which run again.
//
// # Clocks
//
// The server's clock counts. Each shard keeps the largest time that it has seen, and goes on from
// there if the server's clock is found behind, as after a failover to a machine whose clock
// is late. If it is set forward, waits end early: spacing is as good as that clock.
//
// # Lost replies
//
// go-redis sends a command again if its reply does not come (Options.MaxRetries), and a worker
// does. Package queue says why that is no second run.
//
// # Files
//
// store.go has the operations; trips.go sends several at once; scripts.go names the scripts, *.lua,
// and reads their replies.
package redisqueue
