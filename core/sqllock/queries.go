package sqllock

import "strings"

// queries are the statements whose text is the same for every call. The comments list their
// parameters.
type queries struct {
	insertRow     string // keep, key
	lockRow       string // key
	selectClaims  string // key
	insertClaim   string // a claim
	grant         string // token, granted, expires, ttl, key, owner
	extend        string // expires, ttl, key, owner
	keep          string // expires, ttl, key, owner
	deleteExpired string // key, owner, now
	deleteClaim   string // key, owner
	saveRow       string // a lock's row, key
	notify        string // channel, payload

	refresh string // session
	poll    string // session
	inspect string // key, key
	list    string // key, limit
	ping    string

	free free

	named bool // claims have the column origin
}

func newQueries(d Dialect, named bool) *queries {
	column, value, from := "", "", "''"
	if named {
		column, value, from = ", origin", ", ?", "c.origin"
	}
	q := &queries{
		named: named,
		free:  newFree(d, column, value),

		// The row of the empty key has the floor. No lock uses that key.
		insertRow: `INSERT INTO lockaround_lock (lock_key, floor_token, keep_us)
SELECT k.lock_key, COALESCE((SELECT f.floor_token FROM lockaround_lock f WHERE f.lock_key = x''), 0), {now} + ? FROM (SELECT ? AS lock_key) k`,
		lockRow: `SELECT token, floor_token, ousted, asked_us, keep_us, ended FROM lockaround_lock WHERE lock_key = ?{all} FOR UPDATE`,
		selectClaims: `SELECT n.t, c.owner, c.state, c.turn, c.room, c.token, c.granted_us, c.expires_us, c.ttl_us, c.session, c.listens, ` + from + `
FROM (SELECT {now} AS t) n LEFT JOIN lockaround_claim c ON c.lock_key = ? AND c.expires_us > 0{all}`,
		insertClaim: `INSERT INTO lockaround_claim (lock_key, owner, state, turn, room, token, granted_us, expires_us, ttl_us, session, listens` + column + `)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?` + value + `)`,
		grant: `UPDATE lockaround_claim SET state = 1, turn = 9223372036854775807, token = ?, granted_us = ?, expires_us = ?, ttl_us = ?
WHERE lock_key = ? AND owner = ?`,
		extend:        `UPDATE lockaround_claim SET expires_us = GREATEST(expires_us, ?), ttl_us = GREATEST(ttl_us, ?) WHERE lock_key = ? AND owner = ?`,
		keep:          `UPDATE lockaround_claim SET state = 2, expires_us = ?, ttl_us = ?, listens = 0 WHERE lock_key = ? AND owner = ?`,
		deleteExpired: `DELETE FROM lockaround_claim WHERE lock_key = ? AND owner = ? AND expires_us <= ?`,
		deleteClaim:   `DELETE FROM lockaround_claim WHERE lock_key = ? AND owner = ?`,
		saveRow:       `UPDATE lockaround_lock SET token = ?, ousted = ?, asked_us = ?, keep_us = ?, ended = ? WHERE lock_key = ?`,
		notify:        `SELECT pg_notify(?, ?)`,

		// A place whose row a decision has locked is left to the next refresh: the decision may be
		// stuck, and the session's other places must not wait for it. In MySQL the LIMIT makes it
		// read all places before it changes one.
		refresh: `UPDATE (SELECT lock_key, owner FROM lockaround_claim WHERE {alone} AND session = ? AND state = 0 AND expires_us > {now} LIMIT 1000000 FOR UPDATE SKIP LOCKED) p
STRAIGHT_JOIN lockaround_claim c FORCE INDEX (PRIMARY) ON c.lock_key = p.lock_key AND c.owner = p.owner SET c.expires_us = {now} + c.ttl_us`,
		poll: `SELECT c.lock_key, c.owner, c.state, c.room, COALESCE(l.asked_us, 0),
(SELECT COUNT(*) FROM lockaround_claim w WHERE w.lock_key = c.lock_key AND w.state = 0 AND w.turn < c.turn AND w.expires_us > n.t),
(SELECT COUNT(*) FROM lockaround_claim h WHERE h.lock_key = c.lock_key AND h.state > 0 AND h.expires_us > n.t),
COALESCE((SELECT MIN(h.room) FROM lockaround_claim h WHERE h.lock_key = c.lock_key AND h.state > 0 AND h.room > 0 AND h.expires_us > n.t), 0),
COALESCE((SELECT MIN(h.expires_us) FROM lockaround_claim h WHERE h.lock_key = c.lock_key AND h.state > 0 AND h.expires_us > n.t) - n.t, 0)
FROM (SELECT {now} AS t) n CROSS JOIN lockaround_claim c LEFT JOIN lockaround_lock l ON l.lock_key = c.lock_key WHERE {alone} AND c.session = ?{all}`,
		inspect: `SELECT n.t, COALESCE(l.token, 0), c.state, c.room, c.token, c.granted_us, c.expires_us, ` + from + `
FROM (SELECT {now} AS t) n LEFT JOIN lockaround_lock l ON l.lock_key = ? LEFT JOIN lockaround_claim c ON c.lock_key = ? WHERE {alone}{all}`,
		list: `SELECT DISTINCT c.lock_key FROM lockaround_claim c WHERE {alone} AND c.lock_key >= ? AND c.expires_us > {now} ORDER BY c.lock_key LIMIT ?`,
		ping: `SELECT COUNT(*) FROM lockaround_claim c CROSS JOIN lockaround_row r WHERE c.lock_key = x'' AND r.lock_key = x''{all}`,
	}
	if d == PostgreSQL {
		q.insertRow = strings.Replace(q.insertRow, "x''", "''", 1)
		q.ping = strings.ReplaceAll(q.ping, "x''", "''")
		q.insertRow = strings.Replace(q.insertRow, "SELECT ? AS lock_key", "SELECT CAST(? AS bytea) AS lock_key", 1) + ` ON CONFLICT (lock_key) DO NOTHING`
		q.insertRow = strings.Replace(q.insertRow, "{now} + ?", "{now} + CAST(? AS bigint)", 1)
		// A process that stops in the middle of a decision must not keep the key's row
		// locked. If there is no row yet, lockRow has set nothing.
		q.insertRow = `SET LOCAL idle_in_transaction_session_timeout = 1000; ` + q.insertRow
		q.lockRow = strings.Replace(q.lockRow, "ended FROM", "ended, set_config('idle_in_transaction_session_timeout', '1000', true) FROM", 1)
		q.refresh = `UPDATE lockaround_claim w SET expires_us = {now} + w.ttl_us
FROM (SELECT lock_key, owner FROM lockaround_claim WHERE session = ? AND state = 0 AND expires_us > {now} FOR UPDATE SKIP LOCKED) p
WHERE w.lock_key = p.lock_key AND w.owner = p.owner`
	} else {
		// ON DUPLICATE KEY locks an existing row exclusively. IGNORE would take a shared
		// lock, and two transactions that both upgrade it deadlock.
		q.insertRow += ` ON DUPLICATE KEY UPDATE lockaround_lock.lock_key = lockaround_lock.lock_key`
		q.insertRow = strings.Replace(q.insertRow, "SELECT ? AS lock_key", "SELECT CAST(? AS BINARY) AS lock_key", 1)
		q.lockRow = strings.Replace(q.lockRow, "ended FROM", "ended, '' FROM", 1)
	}
	for _, s := range []*string{ // those whose values are parameters
		&q.lockRow, &q.selectClaims, &q.deleteExpired, &q.refresh, &q.poll, &q.inspect, &q.list, &q.ping, &q.free.lease,
	} {
		*s = d.sql(*s)
	}
	return q
}
