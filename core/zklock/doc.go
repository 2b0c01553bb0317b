// Package zklock keeps locks in ZooKeeper (3.5.3 and later), one server or an
// ensemble.
//
//	servers := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
//	locks, err := core.New(zklock.New(servers), core.WithNamespace("shop:prod"))
//
// # Guarantees
//
// A key has one holder at a time, also while servers fail and a new leader is
// elected: what a quorum has acknowledged is not lost. This assumes that clocks run
// at the same rate, and no more of them. While there is no quorum nobody acquires, and
// a lease that cannot be renewed ends at its deadline.
//
// Waiters queue in ZooKeeper, each Acquire with a node of its own, and are served in
// the order in which these were made, over all processes. A newcomer overtakes nobody,
// whatever its mode. Each waiter watches the node before it, one that shares the last
// writer before it, so that a release wakes whom it lets in and nobody else. The first
// in line for a semaphore watches the key. If an event is lost, the waiter finds out
// within a second.
//
// Tokens are numbers of ZooKeeper's transactions (zxid): each grant is a write to the
// holder's own node, made when it is its turn, and that write's number is the token.
// They rise for ever, also when the key's nodes have come and gone meanwhile, when
// servers restart and when leaders change. They stay below 2^53 for two million
// elections. Only servers that have lost their disks, or were emptied, begin anew.
//
// # Leases, sessions and crashes
//
// ZooKeeper knows sessions, and a session's nodes end with it. A TTL is kept by other
// means. Each node says how long its owner lasts after it was last written to; a
// renewal writes to it, and so does a waiter, three times in the length of its place,
// which is its TTL and at most 10 s. The owner's process deletes the node when that
// time is over. If it has crashed, whoever is next in line does: when it has seen the
// same version of the node for the whole length by its own clock, it deletes that
// version and no later one. The owner counted from before the write was sent, the
// other one from after it had read it, so the first is over sooner. No clocks are
// compared.
//
// So a crash of the holder costs those who wait its TTL, from its last renewal on. Who
// comes later waits for the TTL from then on, or until the holder's session has
// expired, if that is sooner: nothing of a crashed process outlives its session's
// time-out, [DefaultSessionTimeout] unless [WithSessionTimeout] says otherwise. A
// crashed process in the queue costs as much as one that held: of several in a row,
// each its length one after the other, but not more than the session's time-out.
//
// A session that expires takes its leases with it. The holder must have given up by
// then, so that a deadline is never later than two fifths of the session's time-out
// after the last answered renewal was sent, even if the TTL is longer: 16 s of the
// default 40 s. Why not all of it: the leader decides when a session has expired, and
// hears from those who are connected to other servers only at every half tick, what
// those heard before. See (*client).lasting. This assumes that a session's time-out
// is two ticks or more, which is the least that servers grant by default, and that
// the leader sends its half-tick's messages in time. Leases longer than that are
// renewed more often, nothing else. When the connection is lost no deadline is
// extended, and when the session has expired the holder is told as soon as a server
// can be reached. Another session is then begun, and the old one's nodes are never
// used again.
//
// A holder that is paused learns of its loss when it goes on; its token is the smaller
// one wherever tokens are checked.
//
// # What it does not do
//
// A key cannot stay taken after its release (Capabilities.Keep): nobody's node could
// end by itself, and nobody's process might be there to end it. Inspect measures what
// remains of a lease by the wall clock of the process that asks, against the leader's
// time of the last write. Oust expects a token that was granted: tokens cannot be
// raised beyond one that is still to come.
//
// # Cost
//
// In round trips, of which writes (w) go to a quorum:
//
//	acquire a free key    3   make the node (w), read the line, take the lease (w)
//	release               1   delete the node (w)
//	hand-over             1   after the event: take the lease (w), reading the line at the same time
//	                          (who is next then reads the new holder once)
//	refused at once       4   make the node (w), read the line, read the holder, delete the node and tell it (w)
//	renewal               1   write to the node (w), reading the line at the same time
//	a waiter              3   writes in its TTL, or in 10 s if that is less, and
//	                      3   small reads in 2 s
//
// The first use of a key by a session costs one read more, to hear of those who ask
// for it while it is held, and of a key that nobody has used for a minute two writes
// more. An event, and two reads, are what it takes to tell a holder that somebody
// waits. Reading the line takes about 45 bytes for each who holds or waits: some
// hundreds on one key are well served, ten thousand are not.
//
// # The client library
//
// The driver makes its own connections and sessions, by github.com/go-zookeeper/zk,
// one of each for every session of the driver, which is one for each engine; servers
// allow 60 from one address by default (maxClientCnxns). The library's calls know no
// context. They run on goroutines of the session, which are left behind when the
// context ends and end with the connection at the latest; what they may still have
// done is undone. A server that has not answered anything for the engine's store
// time-out is left for another one. What the library writes to logs is dropped, since
// it names nodes.
//
// A reply that was lost leaves nothing behind: a node's name contains a mark of its
// owner, a hash, by which it is found again, or found not to be there.
//
// # Closing
//
// Closing a session that holds no lease closes ZooKeeper's session. With leases it is
// left to expire, and they last until their TTL, if somebody waits for them, or until
// it has.
//
// # In the servers
//
// A key is a container, /lockaround-1/=key, in which bytes other than letters, digits,
// ":", "_" and "-" are written as % and two hexadecimal digits. Servers delete it when
// it has been empty for a minute. Anyone who may write to these nodes may end the
// locks in them: see [WithACL] and [WithAuth].
//
// The queue is the recipe for locks of ZooKeeper's documentation, "ZooKeeper Recipes
// and Solutions", with shared locks and the marks in names that it recommends.
package zklock
