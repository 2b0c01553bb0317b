package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockaround/lockaround/core/sqllock"
)

// doctorSQL looks at the database.
func (s *session) doctorSQL(ctx context.Context, f findings) {
	clock := func(query string) check {
		return check{name: "clock", run: func(ctx context.Context, f findings) { s.sqlClock(ctx, f, query) }}
	}
	checks := []check{
		{name: "version", run: s.mysqlVersion},
		{name: "innodb_flush_log", run: s.mysqlSettings},
		{name: "isolation", run: s.isolation},
		clock(`SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`),
	}
	if s.dialect == sqllock.PostgreSQL {
		checks = []check{
			{name: "version", run: s.postgresVersion},
			{name: "synchronous_commit", run: s.postgresSettings},
			{name: "pooler", run: s.pooler},
			{name: "bloat", run: s.bloat},
			clock(`SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`),
		}
	}
	s.each(ctx, f, append(checks, check{name: "tables", run: s.tables, long: true})...)
}

// refuses reports whether the database itself has answered by an error.
func refuses(err error) bool {
	return errors.As(err, new(*pgconn.PgError)) || errors.As(err, new(*mysqldriver.MySQLError))
}

// ask reads one row of texts. It says, and reports, if the database does not answer.
func (s *session) ask(ctx context.Context, f findings, check, query string, to ...*string) bool {
	into := make([]any, len(to))
	for i, p := range to {
		into[i] = p
	}
	if err := s.db.QueryRowContext(ctx, query).Scan(into...); err != nil {
		f.mute(check, s.reason(err), "ask as a user who may, or look at it by yourself")
		return false
	}
	return true
}

func (s *session) postgresVersion(ctx context.Context, f findings) {
	var version, number, recovering string
	if s.ask(ctx, f, "version", `SELECT current_setting('server_version'), current_setting('server_version_num'), pg_is_in_recovery()::text`, &version, &number, &recovering) {
		f.judge(len(number) >= 6 && number >= "110000", bad, "version", "PostgreSQL "+version, "the driver needs 11", "use PostgreSQL 11 or later")
		f.judge(recovering == "false", bad, "role", map[bool]string{true: "primary", false: "standby"}[recovering == "false"], "a standby takes no locks", "give the URL of the primary")
	}
}

func (s *session) postgresSettings(ctx context.Context, f findings) {
	var commit, fsync, standbys, replicas, vacuum string
	if s.ask(ctx, f, "synchronous_commit", `SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('synchronous_standby_names'), current_setting('autovacuum'), (SELECT count(*)::text FROM pg_stat_replication)`,
		&commit, &fsync, &standbys, &vacuum, &replicas) {
		f.judge(commit != "off" && fsync == "on", bad, "synchronous_commit", fmt.Sprintf("synchronous_commit %s, fsync %s", commit, fsync),
			"a crash loses leases that were acknowledged, and with them exclusion", "set synchronous_commit and fsync to on, for the locks' user at least: ALTER ROLE … SET synchronous_commit = on")
		f.judge(replicas == "0" || standbys != "" && commit != "local", warn, "replication", fmt.Sprintf("%s standbys, synchronous_standby_names %q", replicas, standbys),
			"a failover to a standby that lags loses leases", "name a synchronous standby, if losing locks in a failover matters")
		f.judge(vacuum == "on", warn, "autovacuum", vacuum, "the tables of locks change with each of them, and grow without it", "set autovacuum to on")
	}
}

// pooler judges whether the connection is to the server itself: what a pooler tells of the
// server's process at the start of a connection is not that process.
func (s *session) pooler(ctx context.Context, f findings) {
	var told, is int64
	conn, err := s.db.Conn(ctx)
	if err == nil {
		defer conn.Close() //nolint:errcheck // it goes back to the pool
		err = conn.Raw(func(c any) error {
			told = int64(c.(*stdlib.Conn).Conn().PgConn().PID())
			return nil
		})
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&is)
	}
	if err != nil {
		f.mute("pooler", s.reason(err), "see that WithNotifications has a connection to the server itself")
		return
	}
	f.judge(told == is, warn, "pooler", map[bool]string{true: "none: the connection is to the server itself", false: "a pooler, such as PgBouncer, is between"}[told == is],
		"LISTEN is lost in a pooler that gives each transaction another connection: then WithNotifications hears nothing, and waiters find out by polling", "give WithNotifications a connection to the server itself; locks as such may go by the pooler")
}

// bloat judges the dead rows of the tables.
func (s *session) bloat(ctx context.Context, f findings) {
	var live, dead int64
	err := s.db.QueryRowContext(ctx, `SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables
WHERE relname IN ('lockaround_lock', 'lockaround_claim', 'lockaround_row') AND schemaname = current_schema()`).Scan(&live, &dead)
	if err != nil {
		f.mute("bloat", s.reason(err), "look at pg_stat_user_tables by yourself")
		return
	}
	f.judge(dead < 50_000 || dead < 10*live, warn, "bloat", fmt.Sprintf("%d rows, %d dead ones", live, dead), "each look at a key goes past its dead rows", "VACUUM the tables, and let autovacuum come more often: ALTER TABLE lockaround_claim SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)")
}

func (s *session) mysqlVersion(ctx context.Context, f findings) {
	var version string
	if s.ask(ctx, f, "version", `SELECT version()`, &version) {
		product, least := "MySQL", []int{8, 0}
		if strings.Contains(version, "MariaDB") {
			product, least = "MariaDB", []int{10, 6}
		}
		f.judge(atLeast(version, least...), bad, "version", product+" "+version, fmt.Sprintf("the driver needs %s %d.%d", product, least[0], least[1]), "use a later one")
		if product == "MySQL" {
			f.add(warn, "product", "MySQL", "the driver is tested on MariaDB, and not on Oracle's MySQL", "try it with drivertest before you rely on it")
		} else {
			s.idle(ctx, f)
		}
	}
}

func (s *session) mysqlSettings(ctx context.Context, f findings) {
	var flush, readOnly, binlog, sync, rollback string
	if s.ask(ctx, f, "innodb_flush_log", `SELECT @@innodb_flush_log_at_trx_commit, @@read_only, @@log_bin, @@sync_binlog, @@innodb_rollback_on_timeout`, &flush, &readOnly, &binlog, &sync, &rollback) {
		f.judge(flush == "1", bad, "innodb_flush_log", "innodb_flush_log_at_trx_commit "+flush, "a crash of the machine loses leases that were acknowledged, and with them exclusion", "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and put it into the server's file")
		f.judge(binlog == "0" || sync == "1", warn, "sync_binlog", fmt.Sprintf("log_bin %s, sync_binlog %s", binlog, sync), "a crash of the machine loses what replicas were to get, and a failover then loses leases", "SET GLOBAL sync_binlog = 1")
		f.judge(readOnly == "0" || readOnly == "OFF", bad, "role", "read_only "+readOnly, "a replica takes no locks", "give the URL of the primary")
		f.judge(rollback == "0", warn, "innodb_rollback_on_timeout", rollback, "sqllock.InTx refuses to wait with it: a wait that is over would undo the transaction's work", "switch it off, if InTx is used")
	}
}

// idle judges the time after which MariaDB ends the transaction of a process that has stopped.
func (s *session) idle(ctx context.Context, f findings) {
	var idle string
	if s.ask(ctx, f, "idle_transaction_timeout", `SELECT @@idle_transaction_timeout`, &idle) {
		f.judge(idle != "0", warn, "idle_transaction_timeout", idle, "a process that is stopped in the middle of a decision keeps the key's row locked for as long as its connection lives", "SET GLOBAL idle_transaction_timeout = 1, for the locks' user at least; where queues have payloads over 64 KiB, a second more for each 64 KiB")
	}
}

// isolation judges whether transactions may be at READ COMMITTED, as decisions are.
func (s *session) isolation(ctx context.Context, f findings) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil && !refuses(err) {
		f.mute("isolation", s.reason(err), "see that the database is reached")
		return
	}
	if err != nil {
		f.add(bad, "isolation", s.reason(err), "decisions are transactions at READ COMMITTED", "permit that level")
		return
	}
	_ = tx.Rollback() // it has done nothing
	f.add(good, "isolation", "READ COMMITTED, which decisions ask for, is permitted", "", "")
}

func (s *session) sqlClock(ctx context.Context, f findings, query string) {
	var us int64
	if err := s.db.PingContext(ctx); err != nil { // so that no connection has to be made meanwhile
		f.mute("clock", s.reason(err), "see that the database is reached")
		return
	}
	before := time.Now()
	if err := s.db.QueryRowContext(ctx, query).Scan(&us); err != nil {
		f.mute("clock", s.reason(err), "see that the database is reached")
		return
	}
	f.clock(time.UnixMicro(us), before, time.Now())
}

// try executes a statement in a transaction that is rolled back.
func (s *session) try(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, statement)
	_ = tx.Rollback() // it has changed nothing
	return err
}

// tables judges whether the tables are there, and what the user may do to them, by statements
// that change nothing in a transaction that is rolled back.
func (s *session) tables(ctx context.Context, f findings) {
	var missing []string
	var first error
	for _, statement := range []string{
		`SELECT lock_key FROM %s WHERE 1 = 0`, `UPDATE %s SET lock_key = lock_key WHERE 1 = 0`,
		`DELETE FROM %s WHERE 1 = 0`, `INSERT INTO %[1]s SELECT * FROM %[1]s WHERE 1 = 0`,
	} {
		for _, table := range []string{"lockaround_lock", "lockaround_claim", "lockaround_row"} {
			err := s.try(ctx, fmt.Sprintf(statement, table))
			if err != nil && !refuses(err) {
				f.mute("tables", s.reason(err), "see that the database is reached")
				return
			}
			if err != nil {
				verb, _, _ := strings.Cut(statement, " ")
				missing = append(missing, verb+" on "+table)
				if first == nil {
					first = err
				}
			}
		}
	}
	seen := "the tables are there, and may be read and written"
	if first != nil {
		seen = "not possible: " + strings.Join(missing, ", ") + ": " + s.reason(first)
	}
	f.judge(first == nil, bad, "tables", seen, "without them nobody gets a lock", "run sqllock.Migrate, or what sqllock.Schema returns, and GRANT SELECT, INSERT, UPDATE, DELETE on the three tables")
}
