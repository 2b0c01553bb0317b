// Package redislock keeps locks in Redis (6.2 and later; tested on 7.0 and 8.6) or Valkey (tested on
// 8.0 and 9.1). Dragonfly and KeyDB, which take the same commands, are untested.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:prod"))
//
// # Guarantees
//
// While the server keeps what it has acknowledged and clocks run at the same
// rate, a key has one holder at a time. A holder considers its lease over before
// the server does.
//
// Waiters queue in the server, one place for each process and key, and are
// served in turn, however many may hold the key together. A release hands the key
// to the first of them in the same command and tells it by Pub/Sub, so that a
// hand-over takes one round trip. Such a grant lasts as long as the waiter's place, up to 3 s;
// the engine renews it to the TTL 50 ms after the hold has begun, unless the hold is over by then.
// If that message is lost the waiter finds out
// within a second. However many waiters crash, with the holder or without, the next one
// alive is served within 3.5 seconds of the release or of the end of the holder's TTL.
// A waiter that is paused for longer than
// 3 seconds, or its TTL if that is shorter, loses its place and queues again.
//
// The script that makes a place bounds their number by the MaxWaiting of its caller's policy. With Fairness
// Strict each caller has a place, otherwise each process and mode. One of a process that died counts for 3
// seconds at most, in a queue of up to 16; in a longer one until one of the next refusals has found it.
//
// Tokens rise for as long as the server keeps its data, also if its clock goes back. They also rise
// across a restart without persistence, a flush, an eviction or a failover that lost
// writes, unless the clock of the new server is behind by more than the outage
// took: they are made of the server's time, about in microseconds.
//
// A server that loses its data loses its locks: waiters queue again, and the
// first of them may begin while the old holder still runs. The holder learns of
// it when its process is connected again, for then it asks after its leases, or at
// its next renewal, and its token is refused wherever tokens are checked. A key that is
// deleted, overwritten or evicted by itself shows at the next renewal only.
//
// # Settings of the server
//
// If losing locks matters, give Redis appendonly yes with appendfsync always: everysec may
// lose what was acknowledged even if only its process dies. Give it maxmemory-policy
// noeviction: any other policy may evict a lock.
//
// Such a server refuses acquisitions while it is out of memory, as it refuses a SET, and lets
// renewals and releases through, which need no more and soon free some. It looks at its memory
// before the first write of a script only. So the next request of a process that hands a key on to it by
// its release is granted all the same. Its lock is
// as good as others, and takes the room of one key. The log says that the store refuses, with
// its answer, and that it answers again when one is granted.
//
// # On the caller's goroutine
//
// While the server answers quickly, a few callers at a time send their requests themselves,
// each on a connection of the client's pool. Further requests share batches: see [WithConnections]. A caller notices the end of its context 50 ms late at most
// meanwhile. When the server takes longer than 10 ms, goroutines of the session send all
// requests, and callers return at once when their contexts end. A *redis.ClusterClient is
// always used like that, unless its Options say ContextTimeoutEnabled: without it a call
// does not give up a socket when its context ends.
//
// # Sentinel
//
// A client made by [NewFailoverClient] follows the master, as one made by
// redis.NewFailoverClient does if no sentinel is ever behind. A failover that
// loses no write keeps leases and queues: waiters and renewals repeat themselves
// until the new master answers. While there is no master nobody acquires, and a
// lease that cannot be renewed ends at its deadline.
//
// Replication is asynchronous, so that a failover may lose the last writes. The
// new master may then grant a lock that the old holder still has. That holder is
// told as said above, at the latest by its deadline, and its token is the smaller
// one, unless the new master's clock is behind by more than the outage took. A
// master that is cut off from its sentinels, though not from the holder, renews for
// as long as it is taken for the master: set min-replicas-to-write 1 and
// min-replicas-max-lag, which end its leases by their deadlines. [WithReplicas] has a lease count
// only when replicas have it, so that a failover to one of them loses none. Neither makes
// a lost write impossible; tokens are what protects the resource.
//
// # Cluster
//
// A client made by redis.NewClusterClient reaches the master of each key. What is
// said of a failover behind Sentinel goes for a shard. A master that does not
// answer delays only its own keys. Each process has one subscription, at one node,
// to which the others pass pushes on; if that node dies another is used, and until
// then waiters find out within a second.
//
// A slot may move while its keys are locked, waited for and handed over: nothing
// is lost, and callers notice no more than the time for which MIGRATE blocks the
// key. A client may follow a redirection (ASK) so late that the key is elsewhere
// again. So what took longer than 10 ms is not believed at once: a lock that was
// granted is renewed before it counts, and what was denied is asked again. This
// assumes that a slot does not move there, back and away again within 10 ms. The
// late command may leave a key where the slot goes next; move slots with
// redis-cli's --cluster-replace, which overwrites it. While a slot moves, who waits for a key of it that
// one process holds, and nobody has waited for, has no place in the queue yet: it asks until the slot has moved.
//
// Give cluster-require-full-coverage no if the locks of one shard are to outlive
// another shard. Ping asks one master. Keys need no common hash tag, and braces in
// them do not act as one: each is in one of 256 shards, which have their hash tags.
//
// # Cost
//
// A free key is acquired by a SET and an XADD in one write, and released by a short script, or by DELEX
// (Redis from 8.4 on) or DELIFEQ (Valkey from 9.0 on) if the user may: one round trip each. So are several free keys of one policy, at each server of a Cluster. In a Cluster a
// script does both, since the two might go to different servers. A key that another process has wanted
// within the last second is asked for by a script, and a key that seems to be free and is not costs one round
// trip more. A contended key costs two scripts for each critical section too, plus one a second for each process that
// waits and one every third of the TTL for the process that holds, the first of them after 50 ms
// if the key was handed to it and the TTL is longer than 3 s. Of these, callers
// of one process that hand a key on among themselves, or read it together, need none;
// with strict fairness each caller needs its own two, and the time of a hand-over:
// 64 callers of one process on one key take 50 times as long. All holders of a key are in
// one field of its hash, which every script on the key reads: that suits a semaphore of
// some hundreds, not one of many thousands. Concurrent calls share pipelines: see
// [WithConnections]. In a Cluster each master has pipelines of its
// own, and a grant that took longer than 10 ms costs a renewal more. Each session
// subscribes once, on a connection beside the client's pool, at its first Acquire.
//
// # The client
//
// TLS, authentication and pools are options of the go-redis client. Any options will do:
// RESP2 or RESP3, MaxRetries on or off, any time-outs. A *redis.Ring is refused.
// Each attempt is bounded by the engine's store time-out whatever the client's
// own are. Whatever MaxRetries says, sessions repeat commands themselves, at once if a connection
// breaks. So does the client of a Cluster. Where a copy of a request for a key may be under way, as after a broken
// connection, a lost reply, or in a Cluster an answer later than MinRetryBackoff, a script ends the owner and
// makes sure that no late copy takes the key, which stays, free, for ten minutes. Sessions do not close the
// client; close it after them. Add hooks before the session is opened.
// A *redis.Client is used by a copy that redis.Client.WithTimeout makes, which in go-redis
// 9.23 has no hooks: there, redisotel and the like do not see the commands of locks.
//
// go-redis logs each connection that fails, by a logger of its own: redis.SetLogger sets that. The engine's log
// says once that the store does not answer, and once that it does again.
//
// # Rights
//
// In an ACL a user needs
//
//	ACL SETUSER locks on >secret resetkeys resetchannels -@all ~la2:* &la2:*
//	    +set +xadd +evalsha +eval +get +del +exists +pttl +pexpire
//	    +hmget +hexists +hset +hdel +time +publish +subscribe +ping
//
// and for a cheaper release +delex or +delifeq where the server has it, +select if the client's DB is not 0, +wait for [WithReplicas], and in a Cluster +cluster|slots and
// +asking. Ping checks those of the first kind and names what is missing. An operator's tool
// that lists keys needs +scan as well. Anyone who may read these keys may end the locks in them. A
// user with narrower channels than la2:* cannot subscribe, since engines listen to those who
// watch on la2:/* too.
//
// # In the server
//
// A lock is a key la2:{shard}:key. It is there while it is held or waited for, and then is not: a string
// of about 100 bytes while one process has it alone, a hash of some hundred bytes while others wait, or
// hold it together. A hash stays for ten minutes if a holder has died, or if a request for the key may be
// under way still after its caller has given up. Each of 256 shards, at most, has a stream la2:{shard} of
// less than 5 kB, which draws the tokens and stays.
//
// Until a lease has been renewed for the first time, a third of its TTL after the grant, the server may
// not know its token. Inspect, and all that shows holders, names the smallest that was possible at the moment of the
// grant in its place.
//
// Two channels of a namespace are for those who watch engines: "la2:/", the namespace, a slash,
// and "asks" or "reports". Each session subscribes to the first together with its own, and sends
// nothing while nobody watches.
//
// Keys and channels begin with the version of the protocol: another version would use another
// prefix, and not exclude this one. Which releases may share a server is said in package core.
//
// # Files
//
// In the order in which a call passes them:
//
//	driver.go        what a program makes: the driver, its options and sessions; and Ping
//	acquire.go       Acquire, Begin and BeginAll: a request takes a free key or a place in the queue, and waits
//	claims.go        the owners of a session, from before their first request; their places; and busy keys
//	answer.go        what a reply, or a message of the server, means for who asked
//	lease.go         Renew, Release and End
//	cleaner.go       releases that were not answered are repeated
//	operator.go      Inspect, Oust and List
//	lane.go          commands wait for each other, and travel together
//	exchange.go      a caller sends its command itself; and when that is better
//	wire.go          what a lane sends and gets back; which errors end a call
//	client.go        commands go through the program's client of go-redis
//	subscription.go  the one subscription of a session, and what engines tell each other on it
//	replicas.go      WithReplicas: a lease counts when replicas have it
//	plainkeys.go     WithKeys: a lock where another library looks for it
//	sentinel.go      NewFailoverClient: several sentinels of which one may be behind
package redislock
