// Package sqlrecords keeps the records of package idempotent in a database that is there already:
// PostgreSQL (11 or later), MySQL (8.0 or later) or MariaDB (10.6 or later). It is tested on
// PostgreSQL 15 and MariaDB 10.11, and not on Oracle's MySQL. It uses database/sql, so the driver is
// the user's.
//
//	db, err := sql.Open("pgx", "postgres://app@db/shop")
//	err = sqlrecords.Migrate(ctx, db, sqlrecords.PostgreSQL) // once; or run what Schema returns
//	records, err := sqlrecords.New(db, sqlrecords.PostgreSQL, "shop")
//	…
//	pay := idempotent.Must(locks, core.Policy{Key: "pay:{Account}:{RequestID}"}, records, charge,
//		idempotent.Policy{Died: idempotent.Tx})
//
// By [idempotent.Tx] a call writes in a transaction that stores its answer as well:
//
//	func charge(ctx context.Context, p Payment) (Receipt, error) {
//		_, err := idempotent.TxFrom(ctx).ExecContext(ctx, `UPDATE account SET cents = cents - $1 WHERE id = $2`, p.Cents, p.Account)
//		…
//
// So there are the effect and its record, or neither, whatever process or connection dies. The locks may be in any
// store.
//
// # How it works
//
// A record is a row of lockaround_record. Its key is not in it, but a SHA-256 of the store's name and the
// key. [Store.Begin] is one statement in PostgreSQL; in MySQL it is one for a call that is done, and two for
// one that is not. What is there is changed by a statement that names what it has seen, and read again if
// somebody else was faster. Times are the server's. Rows that have ended are deleted by who begins
// others: 100 at a time, once a minute, or each time while there are as many.
//
// Statements are transactions of their own: autocommit=0 in the DSN of MySQL is an error. A statement that
// the database gives up as a victim of others, by a deadlock or at SERIALIZABLE, is sent again.
package sqlrecords
