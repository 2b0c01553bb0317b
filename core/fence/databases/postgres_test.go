package databases_test

import (
	"cmp"
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/lockaround/lockaround/core/fence"
)

var postgres = server{
	name:    "PostgreSQL",
	dialect: fence.PostgreSQL,
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
	run: func(dir, port string) *exec.Cmd {
		program, _ := postgresProgram("postgres") // find has found it
		return exec.Command(program, "-D", dir, "-p", port,
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=200")
	},
	end: syscall.SIGINT, // a fast shutdown
	open: func(port, database string) (*sql.DB, error) {
		return sql.Open("pgx", postgresURL(port, cmp.Or(database, "postgres")))
	},
	home: "current_setting('data_directory')",
}

func postgresURL(port, database string) string {
	return "postgres://root@127.0.0.1:" + port + "/" + database + "?sslmode=disable"
}

// postgresProgram finds a program of the newest server: Debian has them outside of PATH.
func postgresProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", errors.New(name + " is neither in PATH nor in /usr/lib/postgresql")
	}
	return slices.Max(found), nil
}
