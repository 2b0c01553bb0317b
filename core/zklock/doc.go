// Package zklock keeps locks in ZooKeeper (3.5.3 and later), one server or an
// ensemble.
//
//	servers := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
//	locks, err := core.New(zklock.New(servers), core.WithNamespace("shop:prod"))
//
// # Guarantees
//
// A key has one holder at a time, also while servers fail and a new leader is elected: what
// a quorum has acknowledged is not lost. This assumes that clocks run at the same rate, and
// nothing else about them. Without a quorum nobody acquires, and a lease that cannot be
// renewed ends at its deadline.
//
// Waiters queue in ZooKeeper. Each Acquire creates a node of its own, and is served in the
// order of these nodes, over all processes. A newcomer overtakes nobody, whatever its mode.
// An exclusive waiter watches the node before it, and a shared one the last writer before it,
// so that a release only wakes the waiters that it lets in. A request that finds its node behind more
// waiters than the MaxWaiting of its policy deletes the node. The first in line for a semaphore
// watches the key. If an event is lost, the waiter finds out within a second.
//
// A token is the number of a ZooKeeper transaction (zxid): of that which made the holder's node.
// Nodes are granted the key in the order in which they were made, so tokens rise with the grants.
// Of leases that are held together the one that was asked for first has the smallest token, also
// if it hears of its grant last. The grant itself needs no write. If a key has no other node when
// an exclusive request makes its own, that write is the grant: the answer says how many nodes there
// are, as of that write. Tokens rise for ever, also when the key's nodes were deleted meanwhile,
// when servers restart and when leaders change. They stay below 2^53 for two million elections.
// Only servers that have lost their disks, or were emptied, begin anew.
//
// # Leases, sessions and crashes
//
// ZooKeeper has no TTLs of this kind, only sessions, whose nodes end with them. So each node
// says how long its owner lasts after the node's last write. A renewal writes to the node, and
// a waiter writes to its own three times in the length of its place, which is its TTL and at
// most 10 s. Before the first of these a new node lasts for its TTL. When that time is over, the
// owner's process deletes the node. If that process has crashed, the next in line does so: once it
// has seen the same version of the node for the whole time by its own clock, it deletes that version
// and no later one. The owner counts from before it sent the write, and the next in line from after
// it read it, so the owner's time is over first. No clocks are compared.
//
// So a lease that was waited for ends as the last write to its node says, which may have been before
// the grant. If less than nine tenths of its TTL would be left, its holder writes to the node first.
//
// So a crash of the holder costs its waiters its TTL, from its last renewal on. A request that
// comes later waits for the TTL from then on, or until the holder's session has expired, if
// that is sooner. Nothing of a crashed process outlives its session's time-out, which is
// [DefaultSessionTimeout] unless [WithSessionTimeout] sets another. A crashed waiter costs as
// much as a crashed holder. Several in a row cost their times one after the other, but no more
// than the session's time-out.
//
// A session that expires takes its leases with it, and the holder must have given up before. So
// a deadline is never later than two fifths of the session's time-out after the last answered
// write was sent, even if the TTL is longer: 16 s of the default 40 s. It cannot be all of the
// time-out, since the leader decides when a session has expired, and it hears of the clients of
// other servers only at every half tick. See (*client).cappedTTL. This assumes that a session's
// time-out is two ticks or more, which is the least that servers grant by default, and that the
// leader sends its half-tick messages in time. Leases with a longer TTL are only renewed more
// often. When the connection is lost no deadline is extended, and when the session has expired
// the holder is told as soon as a server can be reached. Then another session begins, and the
// old one's nodes are never used again.
//
// A holder that was paused learns of its loss when it goes on. Wherever tokens are checked, its
// token is the smaller one.
//
// # Limits
//
// A key cannot stay taken after its release (Capabilities.Keep): its node could not end by
// itself, and the process that would delete it may have ended. Inspect measures the remaining
// time of a lease by the wall clock of its own process, against the leader's time of the last
// write. Until a lease is renewed, it says that it was granted when it was asked for. Oust expects a
// token that was granted: it cannot raise tokens beyond one to come. A holder that does not know yet
// that its turn has come can be ousted too. If its server lags behind, it may come to know of its
// grant first, and then of the oust.
//
// A lease of a policy with NoRenew ends at its first deadline, which is two fifths of the session's time-out
// if its TTL is longer. With a session below two seconds and a TTL of three or more, that is less than the
// engine wants to serve callers with: use a longer session, or a shorter TTL.
//
// Whoever deletes the node of a waiter by hand may make two holders for some milliseconds: the waiter may
// be next in line, and learns of it when it has been granted the key.
//
// An exclusive holder that was next in line believes that others wait, until it has read the line some
// milliseconds later.
//
// Who holds a key is not stored: core.WithIdentity is refused, and Inspect names nobody. A node
// of a key cannot say more in this version of the protocol, and a node beside it would have to
// be read by a request of its own.
//
// # Cost
//
// In round trips, of which writes (w) go to a quorum:
//
//	acquire a free key    1   make the node, and count the key's nodes in the same step (w)
//	the same, shared      2   make the node (w), read the line and the node at the same time
//	release               1   delete the node (w)
//	a place in the line   3   make the node, and tell the holders in the same step (w), read the line,
//	                          watch the node before it
//	the same, shared      4   beside these, read the node at the same time as the line; and a write (w)
//	                          that tells the holders, if it is the next in line
//	hand-over             0   after the event, to who was second in line when it came
//	the same, to others   1   after the event: read the line
//	refused at once       4   make the node, and tell the holders (w), read the line, read the holder, delete the node (w)
//	renewal               1   write to the node (w), reading the line at the same time
//	a waiter              3   writes in its TTL, or in 10 s if that is less, and
//	                      3   small reads in 2 s; for room in a semaphore as many more, of the line
//
// So a critical section on a key that others wait for takes four requests, or five. A semaphore costs
// what a shared lock does. If one of these has waited, and has others behind it, it writes to its node
// when it takes the lease. So does every request whose node was last written longer ago than a tenth
// of its TTL, or of the longest lease that its session allows.
//
// A lease that is held for more than 5 ms costs one read more, which watches the key for other
// requests, and one of the line if that may have changed since it was read. A key that nobody has used
// for a minute costs two writes more. To tell a holder that its key is contended takes an event and two
// reads. One that knows it already hears of others ten times a second at most. Reading the line takes
// about 45 bytes for each holder and waiter: some hundreds on one key are well served, ten
// thousand are not.
//
// Lock of the client library takes 3 requests for a free key and its release, and this driver 2. On a
// contended key it takes 5, and this driver 4 or 5. It uses a little less of its process's processor
// time, so that it hands over sooner where this driver does not save a request. It has no tokens, no
// TTL and no context, and lasts as long as its session. Package core/lab/peers compares them.
//
// # The client library
//
// The driver makes its own connections and sessions with github.com/go-zookeeper/zk: one of
// each for every session of the driver, so one for each engine. Servers allow 60 from one
// address by default (maxClientCnxns). The library's calls know no context, so they run on
// goroutines of the session. When the context ends, the driver leaves such a call behind and
// undoes what it may still do; the goroutine ends with the connection at the latest. If a server
// has not answered anything for the engine's store time-out, the driver connects to another. If
// there is no session for half of that time, the error says why the last connection failed. It
// drops the library's log messages, since they name nodes.
//
// A lost reply leaves nothing behind: a node's name contains a hash of its owner, by which the
// driver finds the node, or finds that there is none.
//
// # Closing
//
// Closing a session that holds no lease closes ZooKeeper's session. With leases, ZooKeeper's
// session is left to expire. The leases then last until their TTL, if somebody waits for them,
// or else until the session has expired.
//
// # In the servers
//
// A key is a container, /lockaround-1/=key, in which bytes other than letters, digits,
// ":", "_" and "-" are written as % and two hexadecimal digits. Servers delete it when it
// has been empty for a minute. Anyone who may write to these nodes may end the locks in
// them: see [WithACL] and [WithAuth]. Which releases may share an ensemble is said in package core.
//
// The queue is the recipe for locks of ZooKeeper's documentation, "ZooKeeper Recipes
// and Solutions", with shared locks and the marks in names that it recommends.
//
// # Files
//
// In the order in which a call passes them:
//
//	driver.go    what a program makes: the driver, its options and sessions; and Ping
//	acquire.go   Acquire: a request creates its node, and is granted the lease
//	wait.go      a request waits for those before it, by a watch and by polls
//	line.go      what is in ZooKeeper: the line of a key, the names of its nodes, and what is in them
//	claims.go    the leases and requests of a session
//	keywatch.go  a holder hears of those who wait
//	lease.go     Renew and Release, and how nodes of who gave up are deleted
//	operator.go  Inspect, Oust and List
//	call.go      one call of the client library, how it is repeated, and what its errors mean
//	client.go    the session of ZooKeeper, and its connection
package zklock
