package sqlqueue

import (
	"fmt"
	"strings"
)

// statements are those whose text is the same for every call. The comments list their
// parameters; a key is the queue's name and the digest.
type statements struct {
	lock      string // key
	lockOwn   string // the patience, and the key; of PostgreSQL only
	insertKey string // key, lock key, time until what has ended is deleted
	floor     string // queue
	save      string // a line's values, key
	now       string
	read      string // key, sequence
	mark      string // state, attempts, ended, key, sequence
	end       string // the same, and its payload goes
	endRest   string // state, ended, key, first sequence
	prune     string // key, head, first that is kept, ended before
	remove    string // key, sequence

	insert string // key, sequence, ID, payload, trace, appended
	find   string // key, ID

	due      string // queue
	claim    string // queue, until, how many
	sweep    string // queue, idle until, how many
	setFloor string // queue, sequence, sequence + 1

	status  string // key, ID
	parked  string // queue, how many
	stats   string // queue
	channel string // channel, payload
}

func newStatements(d Dialect) *statements {
	var names, sets []string
	for _, f := range (&line{}).fields() {
		names, sets = append(names, "k."+f.column), append(sets, f.column+" = ?")
	}
	const (
		ofKey  = ` WHERE queue_name = ? AND digest = ?`
		ofItem = ofKey + ` AND sequence = ?`
	)
	q := &statements{
		lock: `SELECT {now}, '', ` + strings.Join(names, ", ") + ` FROM lockaround_queue_key k` + ofKey + ` FOR UPDATE`,
		insertKey: fmt.Sprintf(`INSERT INTO lockaround_queue_key (queue_name, digest, lock_key, due_us, idle_us, prune_us)
VALUES (?, ?, ?, %d, {now}, {now} + ?)`, int64(never)),
		floor: `SELECT COALESCE(MAX(sequence), 0) FROM lockaround_queue_key WHERE queue_name = ? AND digest = ''`,
		save:  `UPDATE lockaround_queue_key SET ` + strings.Join(sets, ", ") + ofKey,
		now:   `SELECT {now}`,
		read: `SELECT n.t, i.id, i.payload, i.trace, i.added_us FROM (SELECT {now} AS t) n
LEFT JOIN lockaround_queue_item i ON i.queue_name = ? AND i.digest = ? AND i.sequence = ?`,
		mark:    `UPDATE lockaround_queue_item SET state = ?, attempts = ?, ended_us = ?` + ofItem,
		end:     `UPDATE lockaround_queue_item SET state = ?, attempts = ?, ended_us = ?, payload = ''` + ofItem,
		endRest: `UPDATE lockaround_queue_item SET state = ?, ended_us = ?, payload = ''` + ofKey + ` AND sequence >= ?`,
		prune:   `DELETE FROM lockaround_queue_item` + ofKey + ` AND sequence < ? AND (sequence < ? OR ended_us <= ?)`,
		remove:  `DELETE FROM lockaround_queue_item` + ofItem,
		insert: `INSERT INTO lockaround_queue_item (queue_name, digest, sequence, id, payload, trace, state, attempts, added_us, ended_us)
VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, 0)`,
		find: `SELECT sequence, state, ended_us FROM lockaround_queue_item` + ofKey + ` AND id = ? FOR UPDATE`,

		due:   `SELECT n.t, (SELECT MIN(due_us) FROM lockaround_queue_key WHERE queue_name = ?) FROM (SELECT {now} AS t) n`,
		claim: `SELECT digest FROM lockaround_queue_key WHERE queue_name = ? AND due_us <= ? ORDER BY due_us LIMIT ?`,
		sweep: `SELECT digest FROM lockaround_queue_key WHERE queue_name = ? AND idle_us > 0 AND idle_us <= ? ORDER BY idle_us LIMIT ?`,
		setFloor: fmt.Sprintf(`INSERT INTO lockaround_queue_key (queue_name, digest, lock_key, sequence, head, due_us)
VALUES (?, '', '', ?, ?, %d)`, int64(never)),

		status: `SELECT n.t, k.head, k.attempts, k.running, k.parked, i.sequence, i.state, i.attempts, i.ended_us
FROM (SELECT {now} AS t) n CROSS JOIN lockaround_queue_key k
JOIN lockaround_queue_item i ON i.queue_name = k.queue_name AND i.digest = k.digest
WHERE k.queue_name = ? AND k.digest = ? AND i.id = ?`,
		parked: `SELECT k.lock_key, k.head, k.sequence, i.id, i.ended_us FROM lockaround_queue_key k
JOIN lockaround_queue_item i ON i.queue_name = k.queue_name AND i.digest = k.digest AND i.sequence = k.head
WHERE k.queue_name = ? AND k.idle_us = 0 AND k.parked = 1 ORDER BY i.ended_us, k.digest LIMIT ?`,
		stats: `SELECT MAX(n.t), COALESCE(SUM(k.sequence - k.head + 1), 0), COALESCE(MIN(i.added_us), 0), COALESCE(SUM(k.parked), 0)
FROM (SELECT {now} AS t) n LEFT JOIN lockaround_queue_key k ON k.queue_name = ? AND k.idle_us = 0
LEFT JOIN lockaround_queue_item i ON i.queue_name = k.queue_name AND i.digest = k.digest AND i.sequence = k.head`,
		channel: `SELECT pg_notify(?, ?)`,
	}
	if d == PostgreSQL {
		// A process that stops in the middle of a step must not keep the key's row locked.
		q.lockOwn = strings.Replace(q.lock, `''`, `set_config('idle_in_transaction_session_timeout', ?, true)`, 1)
		// A conflict of any index: transactions that wait for the same key's insertion deadlock over
		// an index that is not named when it is rolled back.
		q.insertKey = strings.Replace(q.insertKey, "{now} + ?", "{now} + CAST(? AS bigint)", 1) + ` ON CONFLICT DO NOTHING`
		q.insert += ` ON CONFLICT (queue_name, digest, id) DO NOTHING`
		q.setFloor += ` ON CONFLICT (queue_name, digest) DO UPDATE
SET sequence = GREATEST(lockaround_queue_key.sequence, excluded.sequence), head = GREATEST(lockaround_queue_key.head, excluded.head)`
	} else {
		// IGNORE would take a shared lock of a key's row that exists, and two transactions that both
		// upgrade it deadlock. With an item's row that cannot be: the key's is locked.
		q.insertKey += ` ON DUPLICATE KEY UPDATE queue_name = queue_name`
		q.insert = strings.Replace(q.insert, "INSERT", "INSERT IGNORE", 1)
		q.setFloor += ` ON DUPLICATE KEY UPDATE sequence = GREATEST(sequence, VALUES(sequence)), head = GREATEST(head, VALUES(head))`
	}
	for _, s := range []*string{
		&q.lock, &q.lockOwn, &q.insertKey, &q.floor, &q.save, &q.now, &q.read, &q.mark, &q.end, &q.endRest, &q.prune, &q.remove, &q.insert, &q.find,
		&q.due, &q.claim, &q.sweep, &q.setFloor, &q.status, &q.parked, &q.stats, &q.channel,
	} {
		*s = d.sql(*s)
	}
	return q
}
