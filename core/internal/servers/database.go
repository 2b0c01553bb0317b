package servers

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Database is a product of database servers. Its user root has no password.
type Database struct {
	Name   string // of the product
	Driver string // of database/sql, for which its sources are
	debian string // the package that has it
	// find returns the server's program, or what is missing on this machine.
	find func() (string, error)
	// create fills a folder.
	create func(data string) *exec.Cmd
	// args are those of the server.
	args func(folder, port string) []string
	end  os.Signal // ends it in good order
	// ready returns why it does not serve yet.
	ready func(*Server) error
	// source is the data source of a database; empty is the one that there is from the start.
	source func(addr, database string) string
}

// Source returns the data source of a database of a server, by way of an address that may be a
// proxy's; empty is the database that there is from the start.
func (d *Database) Source(addr, database string) string { return d.source(addr, database) }

// PostgreSQL is the product of that name, for the driver pgx.
var PostgreSQL = &Database{
	Name:   "PostgreSQL",
	Driver: "pgx",
	debian: "postgresql",
	find: func() (string, error) {
		if _, err := postgresProgram("initdb"); err != nil {
			return "", err
		}
		return postgresProgram("postgres")
	},
	create: func(data string) *exec.Cmd {
		initdb, _ := postgresProgram("initdb") // find has found it
		return exec.Command(initdb, "--auth=trust", "--username=root", "--encoding=UTF8", "--no-sync", "--pgdata="+data)
	},
	args: func(folder, port string) []string {
		return []string{
			"-D", filepath.Join(folder, "data"), "-p", port,
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=200",
		}
	},
	end: syscall.SIGINT, // a fast shutdown
	ready: func(s *Server) error {
		// It writes its number and at last what its state is, in lines of which more may come.
		said, err := os.ReadFile(filepath.Join(s.folder, "data", "postmaster.pid"))
		if err != nil {
			return err
		}
		lines := strings.Split(string(said), "\n")
		if len(lines) < 8 || lines[0] != strconv.Itoa(s.Pid()) || strings.TrimSpace(lines[7]) != "ready" {
			return fmt.Errorf("its state is %q", said)
		}
		return nil
	},
	source: func(addr, database string) string {
		return "postgres://root@" + addr + "/" + cmp.Or(database, "postgres") + "?sslmode=disable"
	},
}

// postgresProgram finds a program of the newest server: Debian has them outside of PATH.
func postgresProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	found, bad := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if bad != nil {
		return "", bad
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w, nor is %s in /usr/lib/postgresql", err, name)
	}
	return slices.Max(found), nil
}

// MariaDB is the product of that name, for the driver mysql.
var MariaDB = &Database{
	Name:   "MariaDB",
	Driver: "mysql",
	debian: "mariadb-server-core",
	find: func() (string, error) {
		for _, name := range []string{"mariadb-install-db", "my_print_defaults"} { // the one calls the other
			if _, err := exec.LookPath(name); err != nil {
				return "", err
			}
		}
		path, err := exec.LookPath("mariadbd")
		if err != nil { // Debian has it in a folder for root
			return exec.LookPath("/usr/sbin/mariadbd")
		}
		return path, nil
	},
	create: func(data string) *exec.Cmd {
		return exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+data,
			"--auth-root-authentication-method=normal", "--skip-test-db")
	},
	args: func(folder, port string) []string {
		// What is committed outlasts the process, and need not outlast the machine.
		return []string{
			"--no-defaults", "--datadir=" + filepath.Join(folder, "data"), "--port=" + port, "--bind-address=127.0.0.1",
			"--socket=" + filepath.Join(folder, "socket"), "--pid-file=" + filepath.Join(folder, "pid"), "--skip-name-resolve",
			"--innodb-flush-log-at-trx-commit=2", "--max-connections=200",
		}
	},
	end: syscall.SIGTERM,
	ready: func(s *Server) error {
		// It has its port before it writes its number, and greets whom it serves.
		said, err := os.ReadFile(filepath.Join(s.folder, "pid"))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(said)) != strconv.Itoa(s.Pid()) {
			return fmt.Errorf("process %q has its files", said)
		}
		conn, err := net.DialTimeout("tcp", s.Addr(), answerWithin)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it has greeted, or not
		_ = conn.SetDeadline(time.Now().Add(answerWithin))
		greeting := make([]byte, 5) // a length, a number, and the version of the protocol
		if _, err := io.ReadFull(conn, greeting); err != nil {
			return err
		}
		if greeting[4] != 10 {
			return fmt.Errorf("it greets with %x", greeting)
		}
		return nil
	},
	source: func(addr, database string) string { return "root@tcp(" + addr + ")/" + database },
}

// Start returns when the server answers. The error is an [exec.ErrNotFound] if its programs are not
// installed.
func (d *Database) Start(ctx context.Context, o Options) (*Server, error) {
	program, err := d.find()
	if err != nil {
		return nil, missing(d.Name, d.debian, err)
	}
	all, err := o.start(ctx, d.Name, 1, 1, func(s *Server, _ int, _ []string) error {
		as, err := unprivileged(s.folder)
		if err != nil {
			return err
		}
		create := as(d.create(filepath.Join(s.folder, "data")))
		create.Env = append(os.Environ(), create.Env...)
		if out, err := create.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", create.Path, err, out)
		}
		said, err := exec.CommandContext(ctx, program, "--version").Output()
		if err != nil {
			return err
		}
		s.Version = d.Name + " " + versions.FindString(string(said))
		s.Cmd = as(exec.Command(program, append(d.args(s.folder, s.ports[0]), o.Args...)...))
		s.End = d.end
		s.Ready = func() error { return d.ready(s) }
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", d.Name, err)
	}
	return all[0], nil
}

// unprivileged returns what makes a command run in a folder as a user that is not root, which
// database servers refuse to be. The folder is that user's then.
func unprivileged(folder string) (func(*exec.Cmd) *exec.Cmd, error) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		if uid, err = strconv.Atoi(nobody.Uid); err != nil {
			return nil, err
		}
		if gid, err = strconv.Atoi(nobody.Gid); err != nil {
			return nil, err
		}
	}
	return func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Dir = folder
		cmd.Env = []string{"HOME=" + folder, "TMPDIR=" + folder, "LC_ALL=C"} // two that install at once share no temporary files
		if uid != os.Getuid() {
			become(cmd, uid, gid)
		}
		return cmd
	}, os.Chown(folder, uid, gid)
}

// Make creates an empty database in the server at an address, by a driver that the program has registered, and
// returns what the server says of its version.
func (d *Database) Make(ctx context.Context, addr, name string) (version string, err error) {
	root, err := sql.Open(d.Driver, d.source(addr, ""))
	if err != nil {
		return "", err
	}
	if _, err = root.ExecContext(ctx, "CREATE DATABASE "+name); err == nil {
		err = root.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	}
	return version, errors.Join(err, root.Close())
}
