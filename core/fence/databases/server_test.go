package databases_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/fence"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(holderVar); what != "" {
		if err := hold(what); err != nil {
			fmt.Fprintln(os.Stderr, "the holder:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, s := range servers {
			if err := s.stop(); err != nil {
				fmt.Fprintf(os.Stderr, "stop %s: %v\n", s.name, err)
				code = max(code, 1)
			}
		}
		os.Exit(code)
	}))
}

// server is a database server of its own on a free port of 127.0.0.1, in a folder of
// its own. It starts with the first test that needs it and ends with the last one.
type server struct {
	name    string
	dialect fence.Dialect

	// find returns what is missing on this machine.
	find func() error
	// create fills the folder.
	create func(dir string) *exec.Cmd
	// run is the server. It ends in good order on end.
	run func(dir, port string) *exec.Cmd
	end os.Signal
	// open connects to a database; empty is the one that there is from the start.
	open func(port, database string) (*sql.DB, error)
	// home is the expression for the server's folder.
	home string

	once    sync.Once
	fault   error
	dir     string
	port    string
	cmd     *exec.Cmd
	created atomic.Int64
}

var servers = []*server{&postgres, &mariadb}

// each runs a test on every database.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) { test(t, s.database(t)) })
	}
}

// database is an empty database with a fence table.
type database struct {
	*sql.DB
	*server
	name  string
	fence *fence.SQL
}

// database skips the test if there is no server on this machine, or fails it if the
// environment says LOCKAROUND_REQUIRE_SERVERS=1.
func (s *server) database(t testing.TB) *database {
	t.Helper()
	if err := s.find(); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("%s is required by LOCKAROUND_REQUIRE_SERVERS: %v", s.name, err)
		}
		t.Skipf("needs %s: %v", s.name, err)
	}
	s.once.Do(func() { s.fault = s.start() })
	if s.fault != nil {
		t.Fatalf("start %s: %v", s.name, s.fault)
	}
	root, err := s.open(s.port, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	d := &database{server: s, name: "test" + strconv.FormatInt(s.created.Add(1), 10)}
	if _, err := root.ExecContext(t.Context(), "CREATE DATABASE "+d.name); err != nil {
		t.Fatal(err)
	}
	d.DB = d.connect(t)
	if d.fence, err = fence.NewSQL(s.dialect, ""); err != nil {
		t.Fatal(err)
	}
	if err := d.fence.Migrate(t.Context(), d.DB); err != nil {
		t.Fatal(err)
	}
	return d
}

// connect returns another pool of connections, as another process would have.
func (d *database) connect(t testing.TB) *sql.DB {
	t.Helper()
	db, err := d.open(d.port, d.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// exec executes statements that must succeed.
func (d *database) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := d.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// number is the result of a query for one number.
func (d *database) number(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.QueryRowContext(context.WithoutCancel(t.Context()), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (s *server) start() (err error) {
	if s.dir, err = os.MkdirTemp("", "lockaround-"+s.name); err != nil {
		return err
	}
	uid, gid, err := unprivileged()
	if err != nil {
		return err
	}
	if err := os.Chown(s.dir, uid, gid); err != nil {
		return err
	}
	create := s.as(uid, gid, s.create(filepath.Join(s.dir, "data")))
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", create.Path, err, out)
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// A free port may be taken by somebody else before the server has it.
	for range 5 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		s.cmd = s.as(uid, gid, s.run(filepath.Join(s.dir, "data"), s.port))
		s.cmd.Stdout, s.cmd.Stderr = log, log
		if err = s.cmd.Start(); err != nil {
			return err
		}
		if err = s.answer(); err == nil {
			return nil
		}
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	out, _ := os.ReadFile(log.Name())
	return fmt.Errorf("%w: %s", err, out)
}

// as runs a command as a user that is not root, which database servers refuse to be.
func (s *server) as(uid, gid int, cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "LC_ALL=C")
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	return cmd
}

func unprivileged() (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return os.Getuid(), os.Getgid(), nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// answer returns when the server answers, and that it is this one.
func (s *server) answer() error {
	db, err := s.open(s.port, "")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var home string
		if err = db.QueryRowContext(ctx, "SELECT "+s.home).Scan(&home); err == nil {
			if filepath.Clean(home) != filepath.Join(s.dir, "data") {
				return errors.New("another server has the port")
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer within 30 s: %w", err)
		case <-tick.C:
		}
	}
}

// stop ends the server and removes its folder.
func (s *server) stop() error {
	var err error
	if s.cmd != nil && s.cmd.Process != nil && s.cmd.ProcessState == nil {
		err = errors.Join(s.cmd.Process.Signal(s.end), s.cmd.Wait())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
