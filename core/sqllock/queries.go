package sqllock

import "strings"

// queries are the statements of a dialect that do not depend on how many they are for.
type queries struct {
	ensure string // key, keep
	lock   string // key
	claims string // key
	add    string // a claim
	grant  string // token, granted, expires, ttl, session, listens, key, owner
	extend string // expires, ttl, key, owner
	keep   string // granted+keep, key, owner
	expire string // key, owner, now
	remove string // key, owner
	save   string // a lock's row, key
	notify string // channel, payload

	refresh string // session
	look    string // session
	inspect string // key
	ping    string
}

func newQueries(d Dialect) *queries {
	q := &queries{
		// The empty key is the row of the floor, which no lock has.
		ensure: `INSERT INTO lockaround_lock (lock_key, floor_token, keep_us)
SELECT k.lock_key, COALESCE((SELECT f.floor_token FROM lockaround_lock f WHERE f.lock_key = ''), 0), {now} + ? FROM (SELECT ? AS lock_key) k`,
		lock: `SELECT token, floor_token, ousted, asked_us, keep_us, ended FROM lockaround_lock WHERE lock_key = ? FOR UPDATE`,
		claims: `SELECT n.t, c.owner, c.state, c.turn, c.room, c.token, c.granted_us, c.expires_us, c.ttl_us, c.session, c.listens
FROM (SELECT {now} AS t) n LEFT JOIN lockaround_claim c ON c.lock_key = ?`,
		add: `INSERT INTO lockaround_claim (lock_key, owner, state, turn, room, token, granted_us, expires_us, ttl_us, session, listens)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		grant: `UPDATE lockaround_claim SET state = 1, turn = 9223372036854775807, token = ?, granted_us = ?, expires_us = ?, ttl_us = ?
WHERE lock_key = ? AND owner = ?`,
		extend: `UPDATE lockaround_claim SET expires_us = GREATEST(expires_us, ?), ttl_us = GREATEST(ttl_us, ?) WHERE lock_key = ? AND owner = ?`,
		keep:   `UPDATE lockaround_claim SET state = 2, expires_us = ?, ttl_us = ?, listens = 0 WHERE lock_key = ? AND owner = ?`,
		expire: `DELETE FROM lockaround_claim WHERE lock_key = ? AND owner = ? AND expires_us <= ?`,
		remove: `DELETE FROM lockaround_claim WHERE lock_key = ? AND owner = ?`,
		save:   `UPDATE lockaround_lock SET token = ?, ousted = ?, asked_us = ?, keep_us = ?, ended = ? WHERE lock_key = ?`,
		notify: `SELECT pg_notify(?, ?)`,

		refresh: `UPDATE lockaround_claim SET expires_us = {now} + ttl_us WHERE session = ? AND state = 0 AND expires_us > {now}`,
		look: `SELECT c.lock_key, c.owner, c.state, c.room, COALESCE(l.asked_us, 0),
(SELECT COUNT(*) FROM lockaround_claim w WHERE w.lock_key = c.lock_key AND w.state = 0 AND w.turn < c.turn AND w.expires_us > n.t),
(SELECT COUNT(*) FROM lockaround_claim h WHERE h.lock_key = c.lock_key AND h.state > 0 AND h.expires_us > n.t),
COALESCE((SELECT MIN(h.room) FROM lockaround_claim h WHERE h.lock_key = c.lock_key AND h.state > 0 AND h.room > 0 AND h.expires_us > n.t), 0),
COALESCE((SELECT MIN(h.expires_us) FROM lockaround_claim h WHERE h.lock_key = c.lock_key AND h.state > 0 AND h.expires_us > n.t) - n.t, 0)
FROM (SELECT {now} AS t) n CROSS JOIN lockaround_claim c LEFT JOIN lockaround_lock l ON l.lock_key = c.lock_key WHERE c.session = ?`,
		inspect: `SELECT n.t, COALESCE(l.token, 0), c.state, c.room, c.token, c.granted_us, c.expires_us
FROM (SELECT {now} AS t) n LEFT JOIN lockaround_lock l ON l.lock_key = ? LEFT JOIN lockaround_claim c ON c.lock_key = ? AND c.expires_us > n.t`,
		ping: `SELECT COUNT(*) FROM lockaround_claim c CROSS JOIN lockaround_row r WHERE c.lock_key = '' AND r.lock_key = ''`,
	}
	if d == PostgreSQL {
		q.ensure = strings.Replace(q.ensure, "SELECT ? AS lock_key", "SELECT CAST(? AS bytea) AS lock_key", 1) + ` ON CONFLICT (lock_key) DO NOTHING`
		q.ensure = strings.Replace(q.ensure, "{now} + ?", "{now} + CAST(? AS bigint)", 1)
		// A process that stops for good in the middle of a decision must not keep the
		// key's row.
		q.lock = strings.Replace(q.lock, "ended FROM", "ended, set_config('idle_in_transaction_session_timeout', '1000', true) FROM", 1)
	} else {
		// A duplicate takes an exclusive lock on the row, not a shared one as with
		// IGNORE, which two would then both want to raise.
		q.ensure += ` ON DUPLICATE KEY UPDATE lockaround_lock.lock_key = lockaround_lock.lock_key`
		q.ensure = strings.Replace(q.ensure, "SELECT ? AS lock_key", "SELECT CAST(? AS BINARY) AS lock_key", 1)
		q.lock = strings.Replace(q.lock, "ended FROM", "ended, '' FROM", 1)
	}
	for _, s := range []*string{
		&q.ensure, &q.lock, &q.claims, &q.add, &q.grant, &q.extend, &q.keep, &q.expire, &q.remove,
		&q.save, &q.notify, &q.refresh, &q.look, &q.inspect, &q.ping,
	} {
		*s = d.sql(*s)
	}
	return q
}
