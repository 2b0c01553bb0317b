// Package queue has the stores under a serial function: a queue for each key, whose items run
// one after the other, spaced, over all processes, and outlive any of them.
//
//	q, err := store.Open("refund", queue.Rules{Spacing: 2 * time.Second, Attempts: 10, MaxLength: 1000, …})
//	place, err := q.Append(ctx, "refund:A-1", queue.New{ID: "r-17", Payload: payload})
//
// serial.New is made of a store, a lock and a function. A worker takes the ordinary
// lock of a key before it begins an item of it. Whoever takes that lock by another way, such
// as a route or a function of package decorator, excludes the items of that key.
//
// # Items
//
// An item is in one of these states:
//
//	waiting   it is in the queue of its key; no run of it is known to be under way
//	running   it is the first of its key, and a run of it was begun
//	done      a run of it ended well
//	dead      it was given up: its attempts are used up, its function said so, or it was
//	          queued behind an item that died under Cascade
//
// A key is idle (no items), due, waiting for a time (spacing, or the pause before a retry),
// claimed by a worker until some time, or parked: its first item is dead under Hold, and nothing of
// it runs until an operator calls Resume.
//
// # Operations
//
// Each one is a single atomic step of the store, and may be repeated after a lost reply:
//
//	Append   adds an item at the end of a key's queue. The ID makes it the same item when it
//	         is repeated: it has the place that it had.
//	Claim    names keys that are due, and keeps other workers away from them for a while. It
//	         gives no right to run anything: the lock does.
//	Begin    under the lock: counts an attempt of the first item, writes the next start of the
//	         key, and returns the item. Both are stored before the function runs.
//	End      under the lock: records that a run is done, is to be repeated, or is dead, and if
//	         asked to, begins the next item in the same step.
//
// # Tokens
//
// Begin and End bring the fencing token of the lock. A store keeps the largest token that has
// come to a key, and refuses a smaller one with [ErrSuperseded]. A run is named by token,
// sequence and attempt. So:
//
//   - a worker that was paused past its lease, and whose End comes after the Begin of another
//     one, changes nothing. If nobody has begun meanwhile its End counts: it was alone.
//   - a Begin that is repeated after a lost reply finds the run of its own token. It
//     returns the same item and the same attempt, and writes the next start anew.
//   - an End that is repeated finds its run ended by its own token, and returns what the
//     first one did, with the item that this has begun.
//   - a late copy of a Begin, after the same token has ended its run or found nothing to begin,
//     begins nothing: nobody would run the item.
//
// # Order
//
// The items of a key run in the order of acknowledged appends: an item whose Append was
// answered before another was called is before it. Only the first item of a key is ever
// begun, so this holds over retries as well. Items have a sequence, a positive number that
// rises with the order within a key. It goes on rising when the store has lost its data, or has forgotten an
// idle key: it begins with the store's clock in microseconds.
//
// # Spacing
//
// Rules.Spacing is from start to start, by the store's clock, with no run between. Begin
// writes the earliest next start before it answers. What the answer took on its way, the
// worker reports in End, and the store puts the next start off by it. A worker that dies
// cannot report. So Begin adds Holder.Grace, and a worker whose answer took longer than its Grace
// begins anew in place of running. A clock that is set back makes no wait shorter: [Memory]
// and redisqueue go on from the last time that they know of, and in the other stores waits last longer
// by as much. A clock that is set forward ends waits early.
//
// # Crash table
//
//	who dies, when                       what is left                      what comes next
//	client, before Append is answered    the item, or not                  the same ID again: one item
//	worker, after Claim                  a claim                           it ends after Holder.For; another worker claims the key
//	worker, after its lock               a claim, a lease                  both end; another worker begins
//	worker, after Begin                  a running item, one attempt       as above; the item runs again, its attempt counts
//	worker, in each run of an item       attempts that are counted         a Begin finds them used up: the item is dead
//	worker, after the effect             the same as after Begin           the effect comes twice, unless serial.MustTx records it
//	worker, after End, before release    a lease                           it ends after its TTL; the next item begins
//	worker, after End began the next     a running item that never ran     it runs, one attempt poorer
//	worker is paused past its lease      its End finds a larger token      refused; the other worker's run counts
//	store, restarted with its data       everything                        workers repeat what had no answer
//	store, failed over, last writes lost items, ends or attempts           an acknowledged item is lost, or runs again, as the store's replication says
//	store, all data lost                 nothing                           sequences and tokens still rise
//	store that evicts                    parts of a queue                  ErrDamaged, where it shows; use a store that evicts nothing
//
// An item runs at least once. It runs more than once if a worker dies, or its lease is lost,
// between an effect and its End.
//
// # Fairness
//
// End begins the next item in the same step, so that a burst costs one round trip for each
// item. A worker does so only while nobody else waits for the lock. A direct caller waits for
// one run at most, and then the key goes through the lock's queue, first come first served.
//
// # What is kept
//
// A store keeps what has ended for Rules.KeepFor, at most Rules.KeepCount items of a key:
// for so long Status tells of it and its ID is known to Append. Then its ID is free. What a
// store knows of an idle key, its largest token among it, is kept for KeepFor after its last
// item has ended.
//
// # Stores
//
// [Memory] is for one process and for tests. Packages redisqueue, sqlqueue and zkqueue beside this one keep
// queues in Redis, in PostgreSQL, MySQL or MariaDB, and in ZooKeeper. Some take smaller payloads than
// [MaxPayload], and refuse others with [ErrItem]. Another store implements [Store] and is
// tested by package queuetest, and over processes by package serialtest. A store in a database may implement [TxAppender] as well.
//
// # Files
//
// queue.go has what a store does, its items and its errors. memory.go is the store in memory,
// memory_line.go the line of one key there.
package queue
