// Package pgtest runs a PostgreSQL server for the tests of adapters, and has those that all of
// them pass that put a transaction inside of a lock.
package pgtest

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
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// server is one for all tests of a package.
var server struct {
	once  sync.Once
	url   string
	fault error
	end   func() error
	names int
}

// Main runs a package's tests, and then ends the server that they have started.
func Main(m *testing.M) {
	code := m.Run()
	if server.end != nil {
		if err := server.end(); err != nil {
			fmt.Fprintln(os.Stderr, "end PostgreSQL:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// URL creates an empty database and returns its address. Without a PostgreSQL the test is
// skipped, or fails if the environment says LOCKAROUND_REQUIRE_SERVERS=1.
func URL(t *testing.T) string {
	t.Helper()
	server.once.Do(func() { server.url, server.end, server.fault = start() })
	switch {
	case errors.Is(server.fault, exec.ErrNotFound) && os.Getenv("LOCKAROUND_REQUIRE_SERVERS") != "1":
		t.Skip(server.fault)
	case server.fault != nil:
		t.Fatal(server.fault)
	}
	root, err := sql.Open("pgx", server.url+"/postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // what was sent has been answered
	server.names++
	name := fmt.Sprint("test", server.names)
	if _, err := root.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return server.url + "/" + name
}

// program finds one of the server: Debian has them outside of PATH.
func program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", err
	}
	return slices.Max(found), nil
}

// start returns the server's address without a database.
func start() (url string, end func() error, err error) {
	initdb, err := program("initdb")
	if err != nil {
		return "", nil, err
	}
	postgres, err := program("postgres")
	if err != nil {
		return "", nil, err
	}
	folder, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()
	as, err := unprivileged(folder)
	if err != nil {
		return "", nil, err
	}
	data := filepath.Join(folder, "data")
	run := func(words ...string) *exec.Cmd {
		words = append(slices.Clone(as), words...)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "HOME="+folder, "TMPDIR="+folder, "LC_ALL=C")
		return cmd
	}
	if out, err := run(initdb, "--auth=trust", "--username=root", "--encoding=UTF8", "--no-sync", "--pgdata="+data).CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return "", nil, err
	}
	cmd := run(postgres, "-D", data, "-p", strconv.Itoa(addr.Port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	end = func() error {
		err := cmd.Process.Signal(os.Interrupt) // a fast shutdown
		return errors.Join(err, <-over, log.Close(), os.RemoveAll(folder))
	}
	url = fmt.Sprintf("postgres://root@%s", addr)
	if err := ready(url, data, over); err != nil {
		said, _ := os.ReadFile(log.Name())
		_ = cmd.Process.Kill() // it may have ended
		return "", nil, fmt.Errorf("start PostgreSQL: %w: %s", err, said)
	}
	return url, end, nil
}

// unprivileged gives the folder to a user that is not root, which PostgreSQL refuses to be, and
// returns what begins a command of that user.
func unprivileged(folder string) (by []string, err error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(nobody.Gid)
	if err != nil {
		return nil, err
	}
	return []string{"setpriv", "--reuid", nobody.Uid, "--regid", nobody.Gid, "--clear-groups"}, os.Chown(folder, uid, gid)
}

// ready returns when the server answers, and is the one that was started.
func ready(url, data string, over chan error) error {
	db, err := sql.Open("pgx", url+"/postgres")
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // what was sent has been answered
	for end := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithDeadline(context.Background(), end)
		var folder string
		err := db.QueryRowContext(ctx, "SELECT current_setting('data_directory')").Scan(&folder)
		cancel()
		switch {
		case err == nil && folder == data:
			return nil
		case err == nil:
			return fmt.Errorf("a server of %s has the port", folder)
		case time.Now().After(end):
			return err
		}
		select {
		case err := <-over:
			over <- err
			return fmt.Errorf("it has ended: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
