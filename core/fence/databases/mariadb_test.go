package databases_test

import (
	"database/sql"
	"os/exec"
	"path/filepath"
	"syscall"

	_ "github.com/go-sql-driver/mysql" // the driver mysql

	"github.com/lockaround/lockaround/core/fence"
)

var mariadb = server{
	name:    "MariaDB",
	dialect: fence.MySQL,
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
	run: func(dir, port string) *exec.Cmd {
		program, _ := mariadbProgram() // find has found it
		return exec.Command(program, "--no-defaults", "--datadir="+dir, "--port="+port, "--bind-address=127.0.0.1",
			"--socket="+filepath.Join(filepath.Dir(dir), "socket"), "--skip-name-resolve",
			"--innodb-flush-log-at-trx-commit=0", "--max-connections=200")
	},
	end: syscall.SIGTERM,
	open: func(port, database string) (*sql.DB, error) {
		return sql.Open("mysql", "root@tcp(127.0.0.1:"+port+")/"+database)
	},
	home: "@@datadir",
}

// mariadbProgram finds the server, which Debian has in a folder for root.
func mariadbProgram() (string, error) {
	path, err := exec.LookPath("mariadbd")
	if err != nil {
		return exec.LookPath("/usr/sbin/mariadbd")
	}
	return path, nil
}
