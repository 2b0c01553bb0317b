// Package zkqueue keeps the queues of serial functions in ZooKeeper (3.5 and later), one server or an
// ensemble.
//
//	conn, _, err := zk.Connect([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, 10*time.Second, zk.WithDialer(zkqueue.Dial))
//	store, err := zkqueue.New(conn, "/shop/queues")
//	…
//	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}"}, store, svc.Refund, serial.Policy{})
//
// It is a module of its own, for its client, github.com/go-zookeeper/zk. The locks may be in any
// store; with those of core/zklock nothing but ZooKeeper is needed. Package queue says what a queue does.
//
// # What is in ZooKeeper
//
// This is the recipe for queues of ZooKeeper's documentation, a node for each item, with these
// differences. A key has a record, which also has the numbers of its items: those that
// servers append to sequential nodes begin anew with each parent. Nobody watches or lists the
// items. The record has the time of the last run, which the next one waits for.
//
//	/shop/queues/1=refund         the queue; data: the largest sequence of forgotten keys
//	  /k/<digest>                 a key; data: its record
//	  /k/<digest>/<sequence>      an item; data: its ID, its trace and payload, or how it has ended
//	  /k/<digest>/=<digest>       the ID of an item; data: its sequence
//	  /d<shard>/<time><n, d, c or p><digest>   a key with items: due since, due at, claimed until, parked since
//	  /w<shard>                   written when a key gets due, and watched by workers
//	  /i<part>/<time>i<digest>    a key without items: when it is forgotten
//	  /c                          written to learn the time
//
// The 1 is the version of this layout. A digest of a key is that of [queue.Digest]. All nodes are
// persistent: nothing ends with a session.
//
// # How it works
//
// A step reads the record of its key, and writes it together with everything else in one Multi, which
// fails if the record has another version by then. Then the step is done again. So the steps
// of a key happen one after the other, and each one whole or not at all. Steps of one
// process on one key wait for each other; those of several processes may have to try several times.
//
// An answer that changes nothing, such as [queue.ErrSuperseded] or a Status, is verified in
// the same way: a Multi checks the version. So a server that is behind the others, from which something
// was read, does no harm. Stats, Parked and the look for due keys are read without that, and may be
// behind by a moment; what a look has missed, the worker hears of when its server has it.
//
// Requests, of which writes (w) go to a quorum:
//
//	append             2   read the record, write (w); 1 more for the first item of a key
//	begin              3   read the record, read the item, write (w)
//	end                2   read the record, write (w); 1 more if the next item is begun
//	status             3   read the record, read the ID, check (w); 1 more for what has ended
//	look for due keys  1   read the names; and 2 for each key that is claimed: read, write (w)
//	stats              2   for each key with items, and 1 for each shard
//
// A key with Spacing that may be due, or may not yet, costs one write more: see Clock.
//
// # How workers hear of items
//
// Workers watch a node of each shard. It is written in the step that makes a key due, so they
// hear within a round trip. An idle worker sends one request in 5 s for each shard, and beside that
// one in 15 s to look for keys to forget, and one in a minute to learn the time. The
// client's pings come on top. When the session expires, or the connection is lost for longer than
// a second, Listen ends, and a worker looks anew. The client library sets watches again when it has connected
// again; with [Dial] none is lost. Without it a worker finds the items when it looks, within 5 s.
//
// # Limits
//
// Servers close the connection of a client whose request exceeds their property
// jute.maxbuffer, which is a little less than 1 MiB unless it is set. So:
//
//   - A payload may have [Store.MaxPayload] bytes, 32 KiB less than that. Append refuses others
//     with [queue.ErrItem]. If the servers have another value, say so by [WithMaxBuffer].
//   - A look reads the names of all keys of a shard that have items, 39 bytes each, and the
//     answer has to fit as well: a shard has room for some 26,000 keys with items. Append refuses the first
//     item of one more. More shards make more room: see [WithShards].
//     Appends at the same time may exceed that by as many as there are.
//   - The items of a key are never listed. Rules.MaxLength and KeepCount are bounded by the
//     servers' memory alone, which holds all nodes: two for each item that waits, with its
//     payload, and two for each that has ended and is kept, without. Set KeepFor and KeepCount no larger
//     than what Status and repeated appends need.
//   - Each process that works looks every 15 s for keys to forget. Names of keys that are to be
//     forgotten are spread over 16 nodes: 400,000 are possible.
//   - A record has 2^31 versions, which a key writes in a month at 800 writes a second if it
//     is never idle for as long as KeepFor.
//
// ZooKeeper is made for coordination: thousands of items a minute are well served, and
// a large ensemble writes no faster than a small one. For more, and for large payloads, use redisqueue or
// sqlqueue.
//
// # Clock
//
// ZooKeeper tells nobody the time. But each write has that of the leader, in whole milliseconds: the
// Mtime of the node. So a record says what happened at the time of its own write, and who reads
// it puts the time in. The decision that a run may start is made by such a time alone: that of the last
// write, if the key is due by it, and otherwise that of one more write, which the step
// sends for this. A wait is a millisecond longer, for times are rounded down. No clock of a client
// counts.
//
// Which keys to look at, and when a claim ends, goes by an estimate: the last writes of the
// process and the time since. It is off by a round trip, and by a moment after an election. Nothing
// but the time of a look depends on it, and when what has ended is forgotten.
//
// So spacing is as good as the leader's clock. If that is set forward, or another server with a clock
// ahead becomes the leader, waits end early by as much. If it is set back, or the next
// leader's is behind, the times of a key stand still until it has caught up: waits last longer. Have
// the servers' clocks agree by NTP. Sequences rise over all that.
//
// # Lost replies, sessions and restarts
//
// A step whose reply was lost is done again by the store, twice at most, and then by the worker;
// package queue says why that is no second run. Claims and Resume are not repeated by the
// store. A session that expires loses nothing, as no node belongs to one. Restarts and elections lose nothing that
// was acknowledged: a quorum has it. Without a quorum operations fail, and nothing runs.
//
// The client library knows no context. An operation whose ctx has ended leaves its
// request behind, which ends with the connection and may still be carried out. A client whose server
// is silent connects to another one after two thirds of the session's time-out, so let that be
// short: 10 s or less. [Dial] mends what the library does to new connections.
//
// Nodes that were deleted or changed by others show as [queue.ErrDamaged], for operations on
// that key, until somebody has looked and has deleted what is left of it.
//
// # Files
//
// store.go opens a queue, names its nodes and dials. operations.go has Append, Begin, End, Resume and
// Status; claim.go has Claim and Listen, and removes what is no longer kept. step.go reads a key,
// changes it and writes it back; change.go has the changes and what is stored.
package zkqueue
