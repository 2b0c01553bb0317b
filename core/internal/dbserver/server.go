// Package dbserver runs real PostgreSQL and MariaDB servers for tests. It needs no driver:
// the test's module has registered those that it opens.
package dbserver

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
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/process"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

// Server is a database server of its own on a free port of 127.0.0.1, in a folder of its
// own. It starts with the first test that needs it and ends with [Server.Stop].
type Server struct {
	Name   string   // of the product
	Driver string   // of database/sql, which the test's module registers
	Env    []string // besides this process's, set before the server starts

	debian string // the package that has it
	// find returns what is missing on this machine.
	find func() error
	// create fills the folder.
	create func(dir string) *exec.Cmd
	// serve is the server. It ends in good order on end.
	serve func(dir, port string) *exec.Cmd
	end   os.Signal
	// source is the data source of a database; empty is the one that there is from the
	// start.
	source func(addr, database string) string
	// home is the expression for the server's folder.
	home string

	once    sync.Once
	fault   error
	dir     string
	port    string
	daemon  *daemon.Daemon // nil before the start
	created atomic.Int64
}

// Start starts the server unless it runs. It skips the test if there is no server on this
// machine, or fails it if the environment says LOCKAROUND_REQUIRE_SERVERS=1.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.once.Do(func() { s.fault = s.Launch(context.Background()) })
	if errors.Is(s.fault, exec.ErrNotFound) {
		daemon.Missing(t, s.Name, s.fault)
	}
	if s.fault != nil {
		t.Fatal(s.fault)
	}
}

// Addr returns the host and port of a server that was started.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// Source returns the data source of a database of this server, by way of an address that
// may be a proxy's; empty is the database that there is from the start.
func (s *Server) Source(addr, database string) string { return s.source(addr, database) }

// Create starts the server if need be, creates an empty database in it and returns its
// name.
func (s *Server) Create(t testing.TB) string {
	t.Helper()
	s.Start(t)
	name := "test" + strconv.FormatInt(s.created.Add(1), 10)
	if _, err := s.Make(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

// Make creates an empty database in a server that was started, and returns the version of
// the server.
func (s *Server) Make(ctx context.Context, name string) (version string, err error) {
	root, err := sql.Open(s.Driver, s.source(s.Addr(), ""))
	if err != nil {
		return "", err
	}
	if _, err = root.ExecContext(ctx, "CREATE DATABASE "+name); err == nil {
		err = root.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	}
	return version, errors.Join(err, root.Close())
}

// Restart ends the server in good order and starts it again on the same port. It returns
// when the server answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.daemon.Retire(); err != nil {
		t.Fatalf("stop %s: %v", s.Name, err)
	}
	if err := s.daemon.Start(context.Background()); err != nil {
		t.Fatalf("restart %s: %v", s.Name, err)
	}
}

// Stop ends the server and removes its folder. Of a server that was never started it is a
// no-op.
func (s *Server) Stop() error {
	if s.daemon == nil {
		return nil
	}
	return errors.Join(s.daemon.Retire(), os.RemoveAll(s.dir))
}

// EndWith ends the server, which has not started yet, with a test of its own.
func (s *Server) EndWith(t testing.TB) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop %s: %v", s.Name, err)
		}
	})
	return s
}

// Main runs a package's tests, and then ends the servers that they have started.
type Main struct {
	*testing.M
	Servers []*Server
}

// Run returns what the tests did, or 1 if a server does not end.
func (m Main) Run() int {
	code := m.M.Run()
	for _, s := range m.Servers {
		if err := s.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop %s: %v\n", s.Name, err)
			code = max(code, 1)
		}
	}
	return code
}

// Daemon is the process of a server that was started, for those who break it.
func (s *Server) Daemon() *daemon.Daemon { return s.daemon }

// Launch is Start for those who have no test. The error is an [exec.ErrNotFound] if the
// server's programs are not installed.
func (s *Server) Launch(ctx context.Context) error {
	if err := s.find(); err != nil {
		return fmt.Errorf("start %s: %w; Debian has it in the package %s", s.Name, errors.Join(err, exec.ErrNotFound), s.debian)
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "lockaround-"+s.Name); err != nil {
		return err
	}
	s.daemon = &daemon.Daemon{Log: filepath.Join(s.dir, "log"), End: s.end, Ready: s.ready}
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, errors.Join(err, s.Stop()))
	}
	return nil
}

func (s *Server) launch(ctx context.Context) error {
	uid, gid, err := unprivileged()
	if err != nil {
		return err
	}
	if err := os.Chown(s.dir, uid, gid); err != nil {
		return err
	}
	create, err := s.as(s.create(s.data()))
	if err != nil {
		return err
	}
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", create.Path, err, out)
	}
	// A free port may be taken by somebody else before the server has it.
	for tries := 1; ; tries++ {
		if s.port, err = process.FreePort(); err != nil {
			return err
		}
		if s.daemon.Cmd, err = s.as(s.serve(s.data(), s.port)); err != nil {
			return err
		}
		s.daemon.Addrs = []string{s.Addr()}
		if err = s.daemon.Start(ctx); err == nil || tries == 5 || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// as runs a command as a user that is not root, which database servers refuse to be.
func (s *Server) as(cmd *exec.Cmd) (*exec.Cmd, error) {
	uid, gid, err := unprivileged()
	if err != nil {
		return nil, err
	}
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), s.Env...), "HOME="+s.dir, "TMPDIR="+s.dir, "LC_ALL=C") // two that install at once share no temporary files
	if uid != os.Getuid() {
		become(cmd, uid, gid)
	}
	return cmd, nil
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

// ready asks whether the server answers, and is this one.
func (s *Server) ready() error {
	db, err := sql.Open(s.Driver, s.source(s.Addr(), ""))
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // it has answered, or not
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var home string
	if err := db.QueryRowContext(ctx, "SELECT "+s.home).Scan(&home); err != nil {
		return err
	}
	if filepath.Clean(home) != s.data() {
		return fmt.Errorf("a server of %s has the port", home)
	}
	return nil
}
