package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/dbserver"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
	"github.com/lockaround/lockaround/core/internal/testkit/ensemble"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
)

var postgres, mariadb = dbserver.PostgreSQL(), dbserver.MariaDB()

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers{m}) }

// servers ends the databases after the tests, and lets clients end that have lost their server.
type servers struct{ *testing.M }

func (s servers) Run() int {
	code := dbserver.Main{M: s.M, Servers: []*dbserver.Server{postgres, mariadb}}.Run()
	for began := time.Now(); goleak.Find() != nil && time.Since(began) < time.Minute; {
	}
	return code
}

// patience is more than a busy machine needs.
const patience = "60s"

// result is what the program did.
type result struct {
	status    int
	out, errs string
}

// ctl runs the program without a terminal.
func ctl(t testing.TB, store string, args ...string) result {
	t.Helper()
	return ctlAt(t, process{in: strings.NewReader("")}, store, args...)
}

func ctlAt(t testing.TB, p process, store string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	p.out, p.errs = &out, &errs
	p.getenv = func(name string) string {
		return map[string]string{"LOCKAROUND_STORE": store, "LOCKAROUND_NAMESPACE": "shop"}[name]
	}
	status := run(t.Context(), p, append([]string{"-timeout", patience}, args...))
	return result{status, out.String(), errs.String()}
}

// must fails the test unless the status is that.
func (r result) must(t testing.TB, status int) result {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d\n%s%s", r.status, status, r.out, r.errs)
	}
	return r
}

func (r result) read(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
}

// service is a session as a service has it.
func service(t testing.TB, store string) *session {
	t.Helper()
	wait, err := time.ParseDuration(patience)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(t.Context(), process{}, &options{store: store, namespace: "shop", timeout: wait}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("end a service: %v", err)
		}
	})
	return s
}

func take(t testing.TB, s *session, p core.Policy) *core.Lease {
	t.Helper()
	p.TTL, p.Wait = time.Minute, time.Minute
	l, err := s.locks.Acquire(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The stores; each starts one and returns its URL.
var stores = map[string]func(testing.TB) string{
	"redis": func(t testing.TB) string { return "redis://" + redistest.Start(t).Addr() },
	"sentinel": func(t testing.TB) string {
		return "redis+sentinel://" + strings.Join(redistest.StartSentinel(t, 1).Addrs(), ",") + "/" + redistest.MasterName
	},
	"cluster": func(t testing.TB) string {
		return "redis+cluster://" + strings.Join(redistest.StartCluster(t, 3, 0).Addrs(), ",")
	},
	"redlock": func(t testing.TB) string {
		return "redis+redlock://" + redistest.Start(t).Addr() + "," + redistest.Start(t).Addr() + "," + redistest.Start(t).Addr()
	},
	"etcd":      func(t testing.TB) string { return "etcd://" + startEtcd(t) },
	"zookeeper": func(t testing.TB) string { return "zookeeper://" + startZooKeeper(t, "tickTime=2000") },
	"postgres": func(t testing.TB) string {
		url := "postgres://root@" + databaseOf(t, postgres) + "?sslmode=disable"
		migrate(t, url)
		return url
	},
	"mariadb": func(t testing.TB) string {
		url := "mariadb://root@" + databaseOf(t, mariadb)
		migrate(t, url)
		return url
	},
}

func startEtcd(t testing.TB) string {
	members, err := ensemble.StartEtcd(t.Context(), t.TempDir(), 1)
	return started(t, "etcd", members, err)
}

func startZooKeeper(t testing.TB, settings string) string {
	members, err := ensemble.ZooKeeper{Settings: settings}.Start(t.Context(), t.TempDir(), 1)
	return started(t, "ZooKeeper", members, err)
}

func started(t testing.TB, what string, members []*ensemble.Member, err error) string {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) {
		daemon.Missing(t, what, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(daemon.Test{Daemon: members[0].Daemon, T: t}.Kill)
	return members[0].Addr
}

// databaseOf returns host:port/database of an empty one.
func databaseOf(t testing.TB, s *dbserver.Server) string {
	name := s.Create(t)
	return s.Addr() + "/" + name
}

func migrate(t testing.TB, url string) {
	t.Helper()
	s := service(t, url)
	d := sqlqueue.PostgreSQL
	if s.dialect == sqllock.MySQL {
		d = sqlqueue.MySQL
	}
	if err := errors.Join(sqllock.Migrate(context.Background(), s.db, s.dialect), sqlqueue.Migrate(context.Background(), s.db, d)); err != nil {
		t.Fatal(err)
	}
}
