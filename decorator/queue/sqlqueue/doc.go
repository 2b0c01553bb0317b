// Package sqlqueue keeps the queues of serial functions in a database that is there already:
// PostgreSQL (11 or later), MySQL (8.0 or later) or MariaDB (10.6 or later). It is tested on
// PostgreSQL 15 and MariaDB 10.11, and not on Oracle's MySQL. It uses database/sql, so the driver is
// the user's.
//
//	db, err := sql.Open("pgx", "postgres://app@db/shop")
//	err = sqlqueue.Migrate(ctx, db, sqlqueue.PostgreSQL) // once; or run what Schema returns
//	store, err := sqlqueue.New(db, sqlqueue.PostgreSQL)
//	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}"}, store, svc.Refund, serial.Policy{})
//
// The locks may be in any store. Package queue says what a queue does.
//
// # Appending in a transaction of one's own
//
// An item can be appended by the transaction that it follows from, so that there is either both
// or neither:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	_, err = tx.ExecContext(ctx, `UPDATE orders SET state = 'returned' WHERE id = $1`, order)
//	place, err := refunds.EnqueueTx(ctx, tx, req, serial.ItemID(req.ID))
//	err = tx.Commit()
//
// The order of a key's items is that in which their transactions were committed. For that the
// key's row stays locked from EnqueueTx until the transaction ends, and nothing else happens
// to the key meanwhile: other appends wait, and so does the end of a run. So append last, commit
// soon, and if a transaction appends to several keys, do so in sorted order, or two of them
// may deadlock. At REPEATABLE READ and SERIALIZABLE PostgreSQL fails with 40001 if another
// transaction has changed the key since this one began: repeat it from its beginning. In MySQL
// a transaction that waits for the first item of a key may fail with 1213 if the one before it is
// rolled back, at every level of isolation: repeat it too.
//
// # How it works
//
// A key is a row of lockaround_queue_key, and each item one of lockaround_queue_item. An
// operation is one transaction at READ COMMITTED that locks the key's row first, and no other
// key's. So the steps of a key happen one after the other, no two operations deadlock, and
// sequences have no gaps and are in the order of the commits. Claims leave out rows that are locked. A
// deadlock with somebody else's transaction, a serialization failure or a lock time-out is
// repeated until ctx ends. A lost connection is an error; a worker asks again, and every operation
// but Resume may be repeated.
//
// Round trips, with BEGIN and COMMIT: 5 to append, 5 to begin a run and 6 to end it, 7 if the next one is
// begun in the same step. A notification is one more. A look for due keys is one, and 6 more if there
// are some. BEGIN takes two in MySQL, and each statement does unless the data source
// has interpolateParams=true, which is recommended. A transaction waits for the disk once. With
// synchronous_commit=off or innodb_flush_log_at_trx_commit=2 it does not, and a crash of the
// machine loses the last appends and ends.
//
// # How workers hear of items
//
// With [WithNotifications] PostgreSQL tells them: within a round trip, also of what was appended in
// a transaction of the user's. PostgreSQL commits transactions that notify one by one; only
// those do that append to a key without items, end a run with items behind it, or resume a key.
//
// Otherwise a process looks, by one statement every 2.6 s ([WithPoll]), and hears at once of
// what was appended by Enqueue of the same Store. An idle process makes no more than one
// statement in 2 s; pgx sends a ping before it if the connection was unused for a second.
//
// # What is kept
//
// What has ended is kept as Rules.KeepFor and KeepCount say, without its payload, and deleted a while
// later, in batches. A key is forgotten KeepFor after its last item has ended: a worker looks for
// such keys once a minute. In PostgreSQL the rows of keys change with every step, so leave
// autovacuum on.
//
// Payloads have up to 16 MiB. MySQL takes no more than max_allowed_packet, which is 16 MiB in
// MariaDB: a payload has to be a little smaller there. An append and each begin carry it.
//
// # Clock
//
// The server's clock counts. If it is set forward, waits end early: spacing is as good as that
// clock. If it is set back, waits last longer by as much, and so do claims. Sequences rise over
// both.
//
// # Restart and failover
//
// A restart loses nothing that was acknowledged, and workers repeat what had no answer. A failover to
// a replica that lacks the last commits loses items, ends and attempts with them, as package
// queue's crash table says: use synchronous replication where that matters. [serial.MustTx]
// keeps its effects and its records in one database, which loses both or neither.
//
// A process that is stopped in the middle of a step keeps the key's row locked. PostgreSQL ends
// its transaction after a second, because the store sets idle_in_transaction_session_timeout. An
// Append has a second more for each 64 KiB of its payload, which a slow link may need. For
// MariaDB set idle_transaction_timeout, to as much as the largest payload needs; MySQL ends it
// when the connection dies. Other keys go on meanwhile. If rows were deleted by hand, operations on the key fail with [queue.ErrDamaged].
//
// # Files
//
// store.go opens a queue, with the tables and the statements of each dialect. operations.go has
// Append, Begin, End, Resume and Status; claim.go has Claim and Listen; state.go changes one key and
// what is stored of it.
//
// [serial.MustTx]: https://pkg.go.dev/github.com/lockaround/lockaround/decorator/serial#MustTx
package sqlqueue
