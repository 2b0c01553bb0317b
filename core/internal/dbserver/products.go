package dbserver

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// PostgreSQL returns a PostgreSQL server that has not started, for database/sql's driver
// pgx.
func PostgreSQL() *Server {
	return &Server{
		Name:   "PostgreSQL",
		debian: "postgresql",
		Driver: "pgx",
		find: func() error {
			if _, err := postgresProgram("initdb"); err != nil {
				return err
			}
			_, err := postgresProgram("postgres")
			return err
		},
		create: func(dir string) *exec.Cmd {
			initdb, _ := postgresProgram("initdb") // find has found it
			return exec.Command(initdb, "--auth=trust", "--username=root", "--encoding=UTF8", "--no-sync", "--pgdata="+dir)
		},
		serve: func(dir, port string) *exec.Cmd {
			program, _ := postgresProgram("postgres") // find has found it
			return exec.Command(program, "-D", dir, "-p", port,
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=200")
		},
		end: syscall.SIGINT, // a fast shutdown
		source: func(addr, database string) string {
			return "postgres://root@" + addr + "/" + cmp.Or(database, "postgres") + "?sslmode=disable"
		},
		home: "current_setting('data_directory')",
	}
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

// MariaDB returns a MariaDB server that has not started, for database/sql's driver mysql.
func MariaDB() *Server {
	return &Server{
		Name:   "MariaDB",
		debian: "mariadb-server-core",
		Driver: "mysql",
		find: func() error {
			for _, name := range []string{"mariadb-install-db", "my_print_defaults"} { // the one calls the other
				if _, err := exec.LookPath(name); err != nil {
					return err
				}
			}
			_, err := mariadbProgram()
			return err
		},
		create: func(dir string) *exec.Cmd {
			return exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+dir,
				"--auth-root-authentication-method=normal", "--skip-test-db")
		},
		serve: func(dir, port string) *exec.Cmd {
			program, _ := mariadbProgram() // find has found it
			// What is committed outlasts the process, and need not outlast the machine.
			return exec.Command(program, "--no-defaults", "--datadir="+dir, "--port="+port, "--bind-address=127.0.0.1",
				"--socket="+filepath.Join(filepath.Dir(dir), "socket"), "--skip-name-resolve",
				"--innodb-flush-log-at-trx-commit=2", "--max-connections=200")
		},
		end: syscall.SIGTERM,
		source: func(addr, database string) string {
			return "root@tcp(" + addr + ")/" + database
		},
		home: "@@datadir",
	}
}

// mariadbProgram finds the server, which Debian has in a folder for root.
func mariadbProgram() (string, error) {
	path, err := exec.LookPath("mariadbd")
	if err != nil {
		return exec.LookPath("/usr/sbin/mariadbd")
	}
	return path, nil
}
