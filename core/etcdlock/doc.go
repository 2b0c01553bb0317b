// Package etcdlock keeps locks in etcd (3.4 and later).
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints:            []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
//		DialKeepAliveTime:    2 * time.Second, // or else a dead connection is noticed after minutes
//		DialKeepAliveTimeout: time.Second,
//	})
//	locks, err := core.New(etcdlock.New(client), core.WithNamespace("shop:prod"))
//
// # Guarantees
//
// Each request for a key creates a place in the key's queue. A place is on an etcd lease of
// its own: no two owners ever share one. The place becomes the lock's lease as soon as its
// owner and the owners of all places before it may hold the key together. Each grant is one
// transaction, which checks that the owner's own place still exists: a write, or after a wait for an
// exclusive lease a read, which costs no disk. Places are in the order
// of etcd's revisions: first come, first served, for every mode and over all processes. The
// MaxWaiting of a policy bounds their number: a request reads the queue before it takes a place there.
//
// As long as a majority of the cluster keeps its data, a key has one holder at a time, also
// while members or the leader crash, restart or are cut off: etcd acknowledges nothing that
// it may lose. A member without a majority grants nothing. A holder considers its lease over
// before etcd does: it counts from before the request was sent, by its monotonic clock and by
// its wall clock, whichever leaves less. Of the servers' clocks only the rate matters. A new leader
// starts every lease anew, which keeps others out for longer and extends no deadline.
//
// There is one exception. If a leader is stopped (SIGSTOP, a frozen machine) for longer than
// a lease lasts, and then goes on, it revokes leases as expired that were renewed at its
// successor (etcd-io/etcd#15247). A waiter recognizes such an end: a lease that was given up
// leaves a mark, and the waiter has read how long the others last. It then waits until the
// holder's deadline has passed. Of a thousand holds of a dozen busy keys, with the leader
// stopped a hundred times, none overlapped the next with etcd 3.6.5, and seven did with
// 3.4.23, by less than 100 ms. On a loaded machine that happened in 6 of 13 rounds, by 20 to 187 ms,
// and no bound is known but the deadline; before 3.4.31 and 3.5.13 a leader that was stopped may also
// answer a renewal. If nobody waits, a request in just that moment may be granted the key
// before the holder has heard of its loss. Its token is the larger one. With 3.4.23 it once was the
// smaller one, in two grants 2.7 ms apart: a guard refuses it then. See package fence.
//
// A fencing token is the revision at which the owner's place was created. Owners that exclude each
// other get a key in the order of their places, so tokens rise for ever, whatever happens to a single
// server. If etcd is
// restored from a backup its revisions go back, and the tokens with them, unless etcdutl
// snapshot restore is given --bump-revision and --mark-compacted.
//
// Data in the same cluster needs no token: use [Driver.IsOwner], a comparison for your own
// transactions.
//
// # Limits
//
// A process that was paused past its deadline may go on for a moment before it knows. Tokens
// and IsOwner protect from what it does then; the lock does not.
//
// # Time
//
// etcd counts leases in whole seconds, and grants none shorter than one and a half times its
// election time-out: 2 s by default, which is Capabilities.MinTTL. So the lease at etcd lasts
// for the TTL, rounded up, or longer if the servers have a longer election time-out. Its
// holder's deadline follows from the TTL itself. After a crash the key is free when etcd's
// lease has expired, plus up to a second until etcd notices. A waiter that has crashed delays
// those behind it by its own TTL at most, rounded up likewise. A change of leader starts these
// times anew. If etcd did not answer a waiter in the last two seconds of a lease, or the waiter
// came in its last 15 ms or was paused, that waiter waits for the holder's TTL once more.
//
// A renewal for a longer TTL than that of the grant moves the place to another etcd lease,
// which takes two requests instead of one. If etcd revokes a lease or lets it expire, the
// holder's watch reports that, most often at once, or else the next renewal does.
//
// With MinHold the key stays on an etcd lease of the time that remains. The process that
// released it frees it to the millisecond. If that process has ended, the key is free up to
// three seconds late.
//
// # Cost
//
// A free key takes two requests: one creates the place, which is the grant, and one deletes
// it. Each is agreed on by a majority and written to its disks. While etcd answers within 25
// ms, the caller's own goroutine asks. An acquisition takes along the releases of other keys that
// are about to be sent, and those that come while eight others are under way travel together in
// the next request. The session keeps the etcd lease of a deleted place for its next place with
// the same TTL: for up to half of the TTL, and 256 of them. Without one, another request grants
// a lease first. A shared or semaphore lease that joins others takes one more, and so does a
// request that has to wait for a key that no request of the session has waited for in the last
// ten seconds.
//
// Beside concurrency.Mutex of etcd's own client, on free keys here are 0.92 times as many sections
// with one caller, and as many with 8 and 64. A section takes two requests with one caller, as the
// Mutex does with any number, 1.4 with eight and 1.1 with 64. Processes that hand a key over take four
// requests for a section: the place, the watch of the one before it, the read that is the grant, and the
// release. A wait of more than 15 ms takes one more, which reads how long the lease of the holder lasts.
// The Mutex takes five or six, since it looks for those before it once more when it has waited, and then
// for its own key. A hand-over between two processes takes 0.7 to 1 of its time, and between 32 of them
// 0.85 to 1.05. These are medians of
// five rounds on two cores, with servers on loopback and without fsync.
// Each acquisition needs a request of its own, since its token is the request's revision. A
// Mutex has one lease for all locks of a session, which are lost together. It does not exclude
// goroutines of one session from each other, and has no deadline.
//
// etcd searches all names that a key's places have had, until they are compacted away. So the
// places of a key on one etcd lease have one name, one after the other, and a key that is in
// steady use has a few names for each process. The name of a traced request ends with its trace,
// so that it is a new one.
//
// A hand-over takes two requests: the release, which wakes the next waiter by its watch, and
// that waiter's grant, which only reads if its lease is exclusive. Only the waiter right behind is woken.
// All watches of holders and waiters share the client's one stream. An exclusive lease that was waited
// for, or whose key was in the last ten seconds, and that is held for 20 ms, takes one write more, which
// says since when, for Inspect. In case an event
// is lost, a waiter polls up to four places before it, after a quarter of a second and then about once a
// second, and reads how long their leases last. While somebody writes, etcd may put a new watch among
// those that begin in the past, which it looks after every 100 ms. So a waiter with four places before it,
// or fewer, polls every 15 ms for that long. Others may be woken that much late. A waiter renews
// its place every third of its TTL. A holder's renewal is a keep-alive and, at the same time,
// a read: nothing is written to disk. All keep-alives of a session share one stream, or up to eight
// if more than 64 wait for their answers; it ends when none has come for 30 s. With authentication
// etcd checks a password for each new stream, which takes 60 ms of its processor: a renewal takes
// 0.2 ms with it, and 0.3 ms without. Leases held for less than 20 ms are not watched.
//
// # The client
//
// The client stays the caller's; close it after the engine. Its calls may block while no
// member answers, but every call of the driver returns when its context ends. With
// authentication a user needs
//
//	etcdctl role grant-permission locks readwrite la1/ --prefix
//
// and Ping reports if that is missing. Anyone who may write there may end the locks. At etcd 3.4,
// which Debian 12 has, a client with a Username also needs [KeepLoggedIn]: without it, each request
// fails for ever once none was made for the life of its token, which is 5 minutes unless
// --auth-token-ttl says otherwise. Ping reports that, too.
//
// # In etcd
//
// A place is la1/{key}/q/{lease}, the key percent-encoded and the etcd lease that the place was
// created on in 32 hexadecimal digits. A slash and the identity of the process follow, and for a
// traced request an asterisk and its trace. A request that finds the key taken and would not wait
// writes la1/{key}/k/{owner} for a moment, so that the holder hears of it. The mark of an etcd lease that places were on is la1/%/{lease}. It lasts as long as
// that lease, and ten seconds longer if the lease was given up. Nothing stays of a key that
// nobody holds and nobody waits for, except the history that etcd's own compaction removes:
// turn on --auto-compaction-retention, as for any use that writes. A request whose answer is
// lost may leave a lease without keys, which expires. Names begin with the version of the
// protocol: another version would use another prefix, and not exclude this one. Which releases
// may share a cluster is said in package core.
//
// # Files
//
// In the order in which a call passes them:
//
//	driver.go        what a program makes: the driver and its sessions, Ping, and KeepLoggedIn
//	acquire.go       Acquire and Begin: a request takes a free key, or a place in the queue
//	request.go       what a request has at etcd, and how it keeps it; which keys were refused of late
//	queue.go         what is in etcd: the queue of a key, its places, and their names
//	wait.go          a request waits for its turn, by a watch and by polls
//	predecessors.go  the places before it; and who may hold a key without having a place
//	claims.go        the leases and requests of a session, and of other sessions; IsOwner
//	watch.go         a holder hears of its loss, and of those who wait
//	renew.go         Renew, and the streams of keep-alives
//	release.go       Release and End, and how places are deleted together
//	lease.go         the leases of etcd: those that are used again, and how the others are given back
//	operator.go      Inspect, List and Oust
//	calls.go         one request at etcd, how it is repeated, and what its errors mean
package etcdlock
