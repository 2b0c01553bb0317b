package sqllock

import (
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Dialect is the SQL that a database understands. The zero value is none.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota + 1 // 11 or later
	MySQL                         // 8.0 or later, and MariaDB 10.6 or later
)

// String returns the name of the database.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	}
	return "no dialect"
}

func usable(db *sql.DB, d Dialect) error {
	if db == nil {
		return errors.New("the *sql.DB is nil; pass one made by sql.Open")
	}
	return d.check()
}

func (d Dialect) check() error {
	if d != PostgreSQL && d != MySQL {
		return fmt.Errorf("dialect %d is unknown; use sqllock.PostgreSQL or sqllock.MySQL", d)
	}
	return nil
}

// words translates what statements have in braces: {now} is the server's time; {alone} is the
// condition that a statement is a transaction of its own, see aloneSQL; and {all} stands at the end of
// a query, whatever sql_select_limit is.
func (d Dialect) words(statement string) string {
	alone, all := aloneSQL, " LIMIT 9223372036854775807"
	if d == PostgreSQL {
		alone, all = "TRUE", ""
	}
	return strings.NewReplacer("{now}", d.now(), "{alone}", alone, "{all}", all).Replace(statement)
}

// sql translates a statement into the dialect: its words, and each ? by a placeholder.
func (d Dialect) sql(statement string) string {
	statement = d.words(statement)
	if d != PostgreSQL {
		return statement
	}
	var b strings.Builder
	n := 0
	for _, r := range statement {
		if r == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// bind returns a statement and the parameters to send with it. In MySQL they become part of its
// text, where they cost no round trip to prepare the statement. PostgreSQL plans it only once.
func (d Dialect) bind(statement string, values ...any) (string, []any) {
	if d == PostgreSQL {
		return statement, values
	}
	return d.text(statement, values...), nil
}

// text translates the words of a statement, and replaces each ? by a value.
func (d Dialect) text(statement string, values ...any) string {
	statement = d.words(statement)
	var b strings.Builder
	for _, v := range values {
		before, after, _ := strings.Cut(statement, "?")
		b.WriteString(before)
		b.WriteString(d.literal(v))
		statement = after
	}
	b.WriteString(statement)
	return b.String()
}

// literal returns a value as it is in a statement's text: an integer; bytes, of which only the
// hexadecimal digits are in it, so that nothing in them means anything to the server; or a string
// of this package's own, of letters and digits.
func (d Dialect) literal(v any) string {
	switch v := v.(type) {
	case []byte:
		if d == PostgreSQL {
			return "decode('" + hex.EncodeToString(v) + "', 'hex')"
		}
		return "x'" + hex.EncodeToString(v) + "'"
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	panic(fmt.Sprintf("sqllock: no literal for a %T", v))
}

// now returns the SQL for the server's time in microseconds since 1970, which does not
// depend on a time zone. PostgreSQL's clock_timestamp advances within a statement; MySQL's
// is the time at which the statement started.
func (d Dialect) now() string {
	if d == PostgreSQL {
		return `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	}
	return `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`
}

// code returns an error's SQLSTATE in PostgreSQL, its number in MySQL, or "". database/sql
// has no common way to get them: drivers for PostgreSQL have a method, and the one for MySQL
// has a field.
func code(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	for err != nil {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() == reflect.Struct {
			if n := v.FieldByName("Number"); n.IsValid() && n.Kind() == reflect.Uint16 {
				return strconv.FormatUint(n.Uint(), 10)
			}
		}
		err = errors.Unwrap(err)
	}
	return ""
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

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

// free are the statements that do the whole of a decision for a key that nobody else wants, see
// acquire.go. Values are part of their text, so that they cost one round trip
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
