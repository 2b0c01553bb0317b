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
// Who asks for a key takes a place in its queue, on a lease of etcd of its own: no two
// callers and no two owners ever share one. A place is the lease as soon as its owner
// and all who came before it may hold the key together. Each grant is one transaction,
// which asks whether the owner's own place is still there; the order of places is that
// of etcd's revisions, so that it is first come, first served, for every mode and over all
// processes.
//
// As long as a majority of the cluster keeps its data a key has one holder at a time,
// also while members or the leader crash, restart or are cut off: etcd answers nothing
// that it may lose. A member without a majority grants nothing. A holder considers its
// lease over before etcd does, by its monotonic clock from before the request was sent;
// no other clock of a client matters, and of the servers' only the rate does. A new
// leader lets every lease last from anew, which keeps others out for longer and nobody in.
//
// There is one exception. A leader that is stopped (SIGSTOP, a frozen machine) for longer
// than a lease lasts, and then goes on, takes leases for expired that were renewed at its
// successor, and has them revoked (etcd-io/etcd#15247). Who waits for the key tells such an end
// from others: what is given up leaves a mark, and how long leases last it has seen. So it waits
// until the holder is over. Of a thousand holds of a dozen busy keys, with the leader stopped a hundred
// times, none overlapped the next with etcd 3.6.5, and seven did with 3.4.23, by less than 100 ms; before
// 3.4.31 and 3.5.13 a leader that was stopped may also answer a renewal. Who asks for the key in
// just that moment, with nobody waiting, may have it before the holder has heard. Its token is
// the larger one. See package fence.
//
// Fencing tokens are the revision of the transaction that has granted the lease. They
// rise for ever, over all keys of the cluster, whatever happens to a single server. If
// etcd is restored from a backup its revisions go back: give etcdutl snapshot restore
// --bump-revision and --mark-compacted, or tokens do too.
//
// What is protected need not believe in a token if it is in the same cluster: see
// [Driver.IsOwner], a comparison for the user's own transactions.
//
// # What it does not
//
// A process that is paused past its deadline may go on for a moment before it knows.
// Tokens and IsOwner protect from what it does then; the lock does not.
//
// # Time
//
// etcd counts leases in whole seconds, and grants none shorter than one and a half of
// its election time-out: 2 s by default, which is Capabilities.MinTTL. The lease at etcd
// is therefore as long as was asked for, rounded up, or longer if the servers' election
// time-out is. Its holder ends it by what it asked for all the same. After a crash
// the key is free when etcd's lease is over, plus up to a second in which etcd notices;
// a waiter that has crashed delays those behind it no longer than its own TTL, rounded up
// likewise. A change of leader begins these times anew. If etcd did not answer the next waiter in
// the two seconds before a lease ended, that one waits for the holder's TTL once more.
//
// A renewal for longer than the lease was granted for puts the place on another lease,
// which takes two requests instead of one. A lease that etcd has revoked, or let expire, is
// reported to its holder as soon as its watch hears of it, which most often is at once,
// and otherwise by the next renewal.
//
// With MinHold the key is kept on a lease of the time that remains, and freed by the
// process that has released it: to the millisecond if that lives, and up to three seconds
// late if it has ended.
//
// # Cost
//
// A free key takes two requests: for the place, which is the grant, and to delete it. Each
// is agreed on by a majority and on its disks. The lease of etcd that the place was on is kept for
// the next one with the same TTL, up to half of the TTL, and 256 of them; without one, another
// request asks for a lease first. A shared or semaphore lease that joins others takes one more.
//
// A hand-over is two: the release, of which etcd tells the next waiter, and that one's
// grant. Only the waiter right behind hears of it. Every holder and every waiter listens
// by the client's one stream for watches. Should a message be lost a waiter looks for
// itself, about once a second, at the places before it and how long up to four leases last. It renews its place every third of its TTL.
// A holder's renewal is a keep-alive and, beside it, a read: it is never written to disk.
// Leases held for less than 20 ms are not watched.
//
// # The client
//
// It stays the caller's; close it after the engine. It blocks by itself while no member
// answers: every call returns with its context all the same. With authentication a
// user needs
//
//	etcdctl role grant-permission locks readwrite la1/ --prefix
//
// and Ping says so if it is not granted. Whoever may write there may end the locks.
//
// # In etcd
//
// A place is la1/{key}/q/{owner}, the key percent-encoded. Who finds a key taken and would
// not wait leaves la1/{key}/k/{owner} for a moment, so that the holder hears of it. The key la1/%/{lease}
// lasts as long as a lease of etcd that places were on, and ten seconds longer if it was given up.
// Nothing stays of a key that nobody holds and nobody waits for, save the history that
// etcd's own compaction removes: turn on --auto-compaction-retention, as for any
// use that writes. A request whose answer is lost may leave a lease without keys, which
// ends by itself. Names begin with the version of the protocol: another version would
// use another prefix, and not exclude this one.
package etcdlock
