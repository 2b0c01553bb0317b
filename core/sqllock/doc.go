// Package sqllock keeps locks in a database that is there already: PostgreSQL (11 or
// later), MySQL (8.0 or later) or MariaDB (10.6 or later; tested on PostgreSQL 15 and
// MariaDB 10.11). It uses database/sql, so the driver is the user's.
//
//	db, err := sql.Open("pgx", "postgres://app@db/shop")
//	err = sqllock.Migrate(ctx, db, sqllock.PostgreSQL) // once; or run what Schema returns
//	store, err := sqllock.New(db, sqllock.PostgreSQL)
//	locks, err := core.New(store, core.WithNamespace("shop:prod"))
//
// There are two kinds of locks, which know nothing of each other. [New] makes leases, for
// core's engine: they outlast a transaction, are renewed, have tokens, and protect
// anything. [InTx] and [WithTx] lock a key until a transaction ends: they protect what is
// in the same database, and there is nothing to renew or to lose.
//
// # Guarantees of leases
//
// While the database keeps what it has committed and its clock is not set forward, a key
// has one holder at a time. All times are the server's. A holder considers its lease over
// before the server does.
//
// Whoever decides on a key locks its row in lockaround_lock with FOR UPDATE for one short
// transaction, at READ COMMITTED; leases and places in the queue are rows of
// lockaround_claim. Waiters are served first come first served, one place for each process
// and key, and nobody passes a queue. A release grants the key to the first of them in the
// same transaction. They find out by looking, with one statement for all claims of a
// session: every 200 ms, and sooner while the queue moves; or in PostgreSQL by NOTIFY, see
// [WithNotifications], with a look every second as the net. Holders learn in the same ways
// that others wait, that somebody has asked who would not wait, and that their lease was
// taken from them.
//
// A crash of a holder costs what is left of its TTL; if the first waiter crashes too, up
// to 3 seconds more. A waiter that is paused for longer than 3 seconds, or its TTL if that
// is shorter, loses its place and queues again. A connection that dies costs nothing:
// leases are not bound to connections. What was under way is tried again on another one
// until the engine's store time-out is over, as are deadlocks and serialization failures.
// If the reply to a COMMIT is lost the owner finds in the table whether it was executed.
// What the caller has given up is never committed later, and if it may have been already,
// it is cleaned up in the background.
//
// Tokens rise for as long as the database keeps its data, also for keys whose rows were
// removed meanwhile. They are the server's time in microseconds, or one more than the last
// one, so that they also rise after a failover that lost commits, unless the new server's
// clock is behind by more than the outage took.
//
// # What is not guaranteed
//
// A failover to a replica that lacks the last commits, as asynchronous replication allows,
// may grant a key that an old holder still has, and has lost its row: that holder learns
// of it at its next look or renewal, and its token is the smaller one. Use synchronous
// replication, or check tokens where it matters; see package fence. A server's clock that
// is set forward ends leases early; one that is set back makes those of crashed processes
// last longer by as much.
//
// A process that is stopped in the middle of a decision, for a few milliseconds of each
// acquisition, keeps the key's row locked. PostgreSQL ends its transaction after a
// second, as the driver tells it to, and the decision is tried again if the process goes
// on. MySQL does so when the connection dies; MariaDB has idle_transaction_timeout for it.
// Nobody else gets the key meanwhile, and those who come to wait take their places when the
// row is free, in no order.
//
// # Cost
//
// In round trips, with BEGIN and COMMIT counted, in PostgreSQL: 5 to acquire a free key (2
// more the first time that a key is used), 6 to release it; 1 to renew up to 64 leases. A
// hand-over takes a release with one statement more, and after the notification 1 of the
// waiter. A session that holds or waits adds 1 a look, and 1 every quarter of 3 seconds
// while it waits. In MySQL, BEGIN is two, a renewal is two statements, and each statement
// two round trips unless the data source says interpolateParams=true, which is worth it.
//
// Each decision commits once, so that its cost is the disk's; synchronous_commit=off and
// innodb_flush_log_at_trx_commit=2 make it cheap, and lose leases when the machine
// crashes. NOTIFY makes PostgreSQL commit those transactions one by one that use it: those
// which have somebody to wake. Nothing of a key stays in the tables when it was not used
// for a minute or two: sessions sweep.
//
// The engine's store time-out bounds how long the server may be silent after a statement;
// a decision of several may take longer in all, and no longer than its caller's context.
//
// Waiting holds no connection. A session uses at most one for each call in progress, 4 for
// cleaning up, and 1 for looks. Transaction poolers (PgBouncer) are fine, but for
// [Notifications], whose connection must be the server's own.
//
// # Advisory locks
//
// The databases have locks of their own that belong to a connection: pg_advisory_lock,
// GET_LOCK. They are left out. Behind a transaction pooler each statement may go by
// another connection, so that they lock nothing or never end, and no client can tell; a
// pool of database/sql does the same to whoever does not pin a connection for as long as
// it holds; and a connection that breaks frees the key at once, while its holder works on.
// They have no queue over processes, no tokens and no expiry. Those of a transaction,
// pg_advisory_xact_lock, have a 64-bit number for a key, so that keys collide; [InTx] does
// the same without.
package sqllock
