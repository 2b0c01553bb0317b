// Package sqllock keeps locks in a database that is there already: PostgreSQL (11 or
// later), MySQL (8.0 or later) or MariaDB (10.6 or later). It is tested on PostgreSQL 15 and
// MariaDB 10.11, and not on Oracle's MySQL. It uses database/sql, so the driver is the user's.
//
//	db, err := sql.Open("pgx", "postgres://app@db/shop")
//	err = sqllock.Migrate(ctx, db, sqllock.PostgreSQL) // once; or run what Schema returns
//	store, err := sqllock.New(db, sqllock.PostgreSQL)
//	locks, err := core.New(store, core.WithNamespace("shop:prod"))
//
// There are two kinds of locks, which are independent of each other. [New] makes leases
// for core's engine: they outlast a transaction, are renewed, have tokens, and can protect
// anything. [InTx] and [WithTx] lock a key until a transaction ends: they protect data in
// the same database, and there is no lease to renew or to lose.
// Which releases may share a database is said in package core.
//
// # Guarantees of leases
//
// A key has one holder at a time, as long as the database keeps its commits and its clock is
// not set forward. All times are the server's. A holder considers its lease over before the
// server does.
//
// An acquisition or release is a decision: one short transaction at READ COMMITTED that
// locks the key's row in lockaround_lock with FOR UPDATE. Leases and places in the queue are
// rows of lockaround_claim. A key that nobody else wants is acquired, and released, by one
// statement that does the same in a transaction of its own; it changes nothing if somebody else
// has a claim, and a decision follows. Waiters are served first come first served, with one place for
// each process and key, and nobody passes a queue. The decision that makes a place bounds their number
// by the MaxWaiting of its caller's policy. A release grants the key to the first
// waiter in the same transaction. The waiter finds out by polling: one statement for all
// claims of a session, every 200 ms, and more often while the queue moves. Two things wake it
// sooner: in PostgreSQL NOTIFY, see [WithNotifications], and in MySQL a named lock, see
// Advisory locks. The session then polls every second, in case a wake-up is lost.
// Holders learn by polls, or by NOTIFY, that somebody
// waits, that a request without a wait has found the key taken, and that their lease was
// ousted. In MySQL a session with leases polls every 200 ms for that.
//
// If a holder crashes, its key becomes free when its TTL is over; if the first waiter
// crashes too, up to 3 seconds later. A waiter that is paused for longer than 3 seconds, or
// its TTL if that is shorter, loses its place and queues again. A broken connection ends no
// lease. Requests on it are retried on another one until the engine's store time-out is
// over, as are deadlocks and serialization failures. If the reply to a COMMIT is lost, the
// retry reads in the table whether it was executed. A decision whose caller has left is not
// committed later. What may have been committed, or may still be, is cleaned up in the
// background: the key's row remembers the last eight owners that have ended, and a request that
// comes after that is refused. At the latest its lease ends with its TTL.
//
// Tokens rise as long as the database keeps its data, also for keys whose rows were removed
// in between. A token is the server's time in microseconds, or the last token plus one if
// that is larger. So tokens also rise after a failover that lost commits, unless the new
// server's clock is behind by more than the outage took.
//
// # What is not guaranteed
//
// With asynchronous replication, a failover can lose the last commits, and with them the
// row of a lease. The new server then grants the key although its old holder still works.
// That holder learns of it at its next poll or renewal, and has the smaller token. Use
// synchronous replication, or check tokens where it matters; see package fence. If the
// server's clock is set forward, leases end early; if it is set back, the leases of crashed
// processes last longer by as much.
//
// A process that is stopped in the middle of a decision, which takes a few milliseconds,
// keeps the key's row locked. PostgreSQL ends its transaction after a second, because the
// driver sets idle_in_transaction_session_timeout. MySQL ends it when the connection dies;
// for MariaDB, set idle_transaction_timeout. If the process goes on, it retries. Meanwhile
// nobody else gets the key, and new waiters take their places when the row is free, in no
// order.
//
// # Cost
//
// Round trips, including BEGIN and COMMIT:
//
//	                            PostgreSQL  MySQL
//	acquire a free key              2         2
//	release it                      1         2, and 1 for up to 32 of them
//	by a decision: acquire          5         6
//	release, without a waiter       5         7
//	release to a waiter             5         8   and 1 or 2 by the waiter once it is woken
//	renew up to 64 leases           1         2
//
// A decision is what it takes if others hold the key or wait for it, and the first time that the
// key is used, with 2 more. A session remembers the keys that others wanted when it last asked;
// otherwise the statement for a free key comes before the decision. A session that holds or waits
// adds 1 for each poll, and 1 every quarter of 3 seconds while it waits. In MySQL a claim that others
// wait for adds 2 for its named lock, and a waiter 1 for each claim that it sleeps behind, and 1 for
// each second; they write nothing. In MySQL renewals and polls
// take two round trips for each statement unless the data source has interpolateParams=true, which
// is recommended.
//
// Each of these commits once, and waits for the disk. With synchronous_commit=off or
// innodb_flush_log_at_trx_commit=2 it does not, but a crash of the machine loses leases.
// PostgreSQL commits transactions that use NOTIFY one by one; only decisions that have a
// session to notify use it.
//
// A key's row stays for a minute after its last lease, and for as long as that would have lasted. Sessions sweep
// such rows, once a minute and after every 1,024 acquisitions, in steps of 512 between which the database has four
// times as long to itself. So the tables grow with the keys of a minute or two, or of a TTL if that is longer. What a
// process used in that time before it closed its engine is left to the sweeps of others, or to [Purge].
//
// The engine's store time-out limits how long the server may take to answer one statement.
// A decision has several statements, so it may take longer, but not longer than its caller's
// context.
//
// A waiter holds no connection, but for those below. The keys of a policy with several are asked for four at a time,
// so that they take few connections of the pool. A session uses at most one connection for each call in
// progress, 4 for cleaning up, and 1 for polls. In MySQL it keeps 1 more for its named locks while it has any,
// and 1 for each of its first 4 waiters; the others poll. They are at most a quarter of a pool that is
// bounded (SetMaxOpenConns), none if it has less than 8 connections, and are given back within a second
// when all of the pool are in use. A connection that is not used is given back after 5 seconds. Transaction poolers (PgBouncer) work, but
// [Notifications] need a connection to the server itself: a LISTEN through a pooler hears nothing. Ping finds that out,
// by a notification to itself, and a session that has found it out polls as one without notifications. With pgx such a
// pooler also needs default_query_exec_mode=exec (or simple_protocol) in the data source: pgx otherwise prepares
// statements, which the next server connection does not know (SQLSTATE 26000, 42P05).
//
// # Settings of connections
//
// The locks are right whatever these are set to, in the data source, for the user, or for the server:
// the isolation level, the time zone, and, in MySQL, autocommit, completion_type, sql_select_limit and
// sql_mode; and the time-outs of statements, locks and idle transactions, if they leave a statement the
// time that it takes. They are tested one by one, with all that a session does. In MySQL each statement that is to be a transaction of its own asks the server whether it is,
// without a round trip for that. If it is not, with autocommit off or completion_type=CHAIN, it is sent
// again between START TRANSACTION and COMMIT, which takes four round trips more, and a free key is left
// to a decision.
//
// Ping refuses, and says what to change: transactions that are read-only by default
// (default_transaction_read_only, tx_read_only), tables that are not in the search_path, and, in MySQL,
// sql_safe_updates, and a clock that SET timestamp has stopped.
//
// # Advisory locks
//
// The databases have locks that belong to a connection: pg_advisory_lock, GET_LOCK. No lease of this
// package depends on one. Behind a transaction pooler each statement may use another
// connection; then these locks lock nothing or never end, and the client cannot tell. The
// same happens with a pool of database/sql unless the holder pins its connection. And if the
// connection breaks, the key is free at once although its holder still works. They also have
// no queue across processes, no tokens and no expiry. pg_advisory_xact_lock belongs to a
// transaction, but its key is a 64-bit number, so that keys collide. [InTx] has no such
// collisions.
//
// In MySQL they serve to wake waiters. A session has a named lock of the server for each of its claims that
// others may wait for: of all its waiters, of the leases that they become, and of leases whose key others
// were seen to want. Its name is la: and a hash. When the claim has ended, the session releases the named lock. A
// waiter sleeps in a GET_LOCK of the claim before it alone: of the waiter before it, or, if it is the first, of
// a holder. It releases what it gets at once, and asks the tables. So a named lock that is free too early
// costs a request, and one that is missing, or never free, a poll:
//
//   - if the claim's session has no connection to spare, or its connection breaks, or it uses another node of a
//     cluster, the waiter polls as often as without named locks;
//   - if the session is stopped or cut off, or the first waiter waits for several holders of a semaphore, another
//     claim may end first, and the waiter finds that out by a poll;
//   - behind a transaction pooler a named lock stays with a connection of the pooler's. The session finds
//     that out when it uses its own again, at the latest after 6 seconds, and does without them from then on.
//     So it does if the server refuses GET_LOCK three times in a row, as with a max_statement_time of less
//     than a second.
//
// They are faster: to lock and unlock takes two round trips, which write nothing. A lease takes three
// in PostgreSQL, of which two commit, and four or five in MySQL. Package core/lab/peers compares
// them.
//
// # Files
//
// In the order in which a call passes them:
//
//	driver.go    what a program makes: the driver, its options and sessions; and Ping
//	acquire.go   Acquire; and the one statement that takes, or ends, what nobody else wants
//	decision.go  a transaction that locks the row of a key, and changes its claims
//	claims.go    the claims of a key in the database, and what a session knows of its own
//	attempt.go   a caller may abandon an attempt; statements and transactions; and errors
//	lease.go     Renew and Release
//	poll.go      a session reads what has become of its claims
//	baton.go     a session has a named lock of MySQL for each claim that others wait for
//	sleep.go     a waiter sleeps until the one before it is released
//	listen.go    NOTIFY wakes a session; and whether it hears of it
//	sweep.go     Purge; rows that are no longer used are deleted
//	operator.go  Inspect, Oust and List
//	dialect.go   the texts of the statements, and how databases differ
//	schema.go    Schema and Migrate; tables that have no column of origins yet
//	tx.go        InTx and WithTx: a lock for as long as a transaction lasts
package sqllock
