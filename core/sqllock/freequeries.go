package sqllock

// free are the statements that do the whole of a decision for a key that nobody else wants, see
// free.go. Values are part of their text, so that they cost one round trip
// whatever the client library does with parameters; see Dialect.literal. The comments list their
// values.
type free struct {
	begin string // before it, in the same request in PostgreSQL; key
	take  string // owner, room, TTL, TTL, session, listens, key, owner; with the column origin after listens
	end   string // key, owner, key, owner, retention, owner, length of ended, key
	lease string // the token of a lease, and whether somebody waits: key, owner
}

// atReadCommitted sets the level of the next transaction, whatever the connection's is.
const atReadCommitted = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`

func newFree(d Dialect, column, value string) free {
	f := free{
		lease: `SELECT c.token, ` + contendedSQL + ` FROM lockaround_claim c WHERE c.lock_key = ? AND c.owner = ? AND c.state = 1`, // of PostgreSQL
	}
	const columns = `INSERT INTO lockaround_claim (lock_key, owner, state, turn, room, token, granted_us, expires_us, ttl_us, session, listens`
	if d == PostgreSQL {
		// The row is locked by a statement before, as each sees what was committed before it began.
		// That statement says so in a setting of the transaction: a row that it has not found may be
		// there when the next statement looks, and is then not locked.
		f.begin = atReadCommitted + `; SELECT set_config('lockaround.locked', 'yes', true) FROM (SELECT 1 FROM lockaround_lock WHERE lock_key = ? FOR UPDATE) l; `
		const locked = `current_setting('lockaround.locked', true) = 'yes'`
		f.take = columns + column + `)
SELECT l.lock_key, ?, 1, 9223372036854775807, ?, n.t, n.t, n.t + ?, ?, ?, ?` + value + `
FROM lockaround_lock l CROSS JOIN (SELECT {now} AS t) n
WHERE l.lock_key = ? AND l.token < n.t AND l.floor_token < n.t AND position(? IN l.ended) = 0 AND ` + locked + `
AND NOT EXISTS (SELECT 1 FROM lockaround_claim c WHERE c.lock_key = l.lock_key)`
		f.end = `WITH g AS (DELETE FROM lockaround_claim c WHERE c.lock_key = ? AND c.owner = ? AND c.state = 1 AND c.expires_us > {now}
AND ` + locked + `
AND NOT EXISTS (SELECT 1 FROM lockaround_claim o WHERE o.lock_key = ? AND o.owner <> ?) RETURNING c.token, c.expires_us)
UPDATE lockaround_lock l SET token = GREATEST(l.token, g.token), keep_us = GREATEST(l.keep_us, g.expires_us, {now} + ?),
ended = substring(? || l.ended FROM 1 FOR ?) FROM g WHERE l.lock_key = ?`
		return f
	}
	// The row is the first table of the join, and locked before claims are read. A locking read
	// sees what was committed last.
	f.take = columns + column + `)
SELECT l.lock_key, ?, 1, 9223372036854775807, ?, LAST_INSERT_ID({now}), {now}, {now} + ?, ?, ?, ?` + value + `
FROM lockaround_lock l LEFT JOIN lockaround_claim c ON c.lock_key = l.lock_key AND c.expires_us > 0
WHERE {alone} AND l.lock_key = ? AND l.token < {now} AND l.floor_token < {now} AND LOCATE(?, l.ended) = 0 AND c.lock_key IS NULL FOR UPDATE`
	// MySQL cannot delete from one table and update another in one statement. So the claim is
	// spent: it has expired long ago, and is deleted a little later.
	f.end = `UPDATE lockaround_lock l JOIN lockaround_claim c ON c.lock_key = ? AND c.owner = ?
LEFT JOIN lockaround_claim o ON o.lock_key = ? AND LOCATE(?, o.owner) = 0 AND o.expires_us > 0
SET l.token = GREATEST(l.token, c.token), l.keep_us = GREATEST(l.keep_us, {now} + GREATEST(?, c.ttl_us)),
l.ended = LEFT(CONCAT(?, l.ended), ?), c.expires_us = 0
WHERE {alone} AND l.lock_key = ? AND c.state = 1 AND c.expires_us > {now} AND o.owner IS NULL`
	return f
}

// contendedSQL is the condition that somebody waits for the key of c.
const contendedSQL = `EXISTS (SELECT 1 FROM lockaround_claim w WHERE w.lock_key = c.lock_key AND w.state = 0 AND w.expires_us > {now})`
