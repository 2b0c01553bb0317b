// Package idempotent runs a call once for each key, however often it is sent: a repeated call gets
// the answer of the first.
//
//	records, err := redisrecords.New(rdb, "shop:once:") // idempotent.NewMemory, in one process
//	…
//	pay := idempotent.Must(locks, core.Policy{Key: "pay:{Account}:{RequestID}", Wait: 5 * time.Second}, records, charge,
//		idempotent.Policy{Died: idempotent.Refuse})
//	receipt, err := pay.Call(ctx, Payment{Account: "A-1", RequestID: "8e03978e", Cents: 100})
//
// A lock keeps two requests apart; it does not keep a request that its client sends again, as after a
// time-out, from having its effect twice. Here the first call leaves a record of what it answered,
// for 24 hours unless [Policy.Keep] says otherwise.
//
// The key has to name the caller beside what he has chosen: {Account} above. Otherwise two callers that
// choose the same one get each other's answers.
//
// # A call
//
// It asks the store for the record of its key. If there is an answer it gets that, in one round trip and
// without the lock. If there is no record, the same round trip has begun one: the call takes the lock of the key, runs,
// stores the answer, and releases. That is two round trips to the store of records beside those of the lock.
//
// If another call has begun the record, it waits for the lock, as long as the Wait of its
// [core.Policy] says, and looks again. With a Wait of 0 it gets a [core.ErrBusy] at once.
//
// Another argument under the same key is an [ErrMismatch], also after a run that died. If the store does not answer, the
// call is an [ErrUnavailable]: it never runs unprotected.
//
// The function runs with the values of the caller's context, and does not end with it: a client that
// hangs up gets the answer when it asks again. Its context ends with the lease; a MaxHold bounds it.
//
// # If a run dies
//
// A process may crash between the effect and the record of it. No lock can tell afterwards whether
// the effect has happened. [Policy.Died] says what a repeated call gets: another run ([Rerun]) or
// an [ErrUnknown] ([Refuse]). The same goes for a run that panics, one whose answer cannot be stored, and
// one whose lock is lost. An error that the function returns while it has its lock is none of these: it is
// the function's word that nothing has happened which a second run would repeat. One that it returns after
// its lease or its MaxHold has ended counts as died.
//
// If the effect is written to a database that has the records as well, it happens exactly once: by [Tx]
// both are in one transaction, and what died has left neither.
//
// # Why no call runs twice at once
//
// Who begins a record without a lock yet has it for himself for two seconds, by the store's
// clock. Whoever has the lock within that time, reckoned from before the request, runs. Later he
// asks again, with his fencing token. A record that somebody else has begun is taken over only under
// the lock, after those two seconds, and by a larger token. So of those who run one after the
// other, only the last can store an answer, and whoever lost the lock before he had stored his
// is told so.
//
// A store that loses records, by eviction, a restart or a failover, lets their calls run again. Give Redis
// maxmemory-policy noeviction.
//
// # Stores
//
// [Memory] keeps records in the process. [github.com/lockaround/lockaround/decorator/idempotent/redisrecords]
// keeps them in Redis, for all processes, and
// [github.com/lockaround/lockaround/decorator/idempotent/sqlrecords] in PostgreSQL, MySQL or MariaDB, where they
// survive a Redis. Another one implements [Store] and is tested by
// [github.com/lockaround/lockaround/decorator/idempotent/idempotenttest].
//
// # Files
//
// function.go puts it around a function; guard.go has the call, for surfaces; policy.go what a [Policy] and an
// [Error] say; tx.go runs it in a transaction; generated.go is for code that lockgen generates; key.go parses a key that a client sends; store.go says what a
// [Store] does; memory.go is the one in the process.
package idempotent
