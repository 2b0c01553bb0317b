package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/dbserver"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
)

var postgres, mariadb = dbserver.PostgreSQL(), dbserver.MariaDB()

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers{m}) }

// servers ends the databases after the tests, and lets clients end that have lost their server.
type servers struct{ *testing.M }

func (s servers) Run() int {
	code := testservers.Main{M: s.M}.Run()
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
	"redis": func(t testing.TB) string { return "redis://" + testservers.Redis(t).Addr() },
	"sentinel": func(t testing.TB) string {
		return "redis+sentinel://" + strings.Join(testservers.RedisSentinel(t, 1).Addrs(), ",") + "/" + testservers.MasterName
	},
	"cluster": func(t testing.TB) string {
		return "redis+cluster://" + strings.Join(testservers.RedisCluster(t, 3, 0).Addrs(), ",")
	},
	"redlock": func(t testing.TB) string {
		return "redis+redlock://" + testservers.Redis(t).Addr() + "," + testservers.Redis(t).Addr() + "," + testservers.Redis(t).Addr()
	},
	"etcd":      func(t testing.TB) string { return "etcd://" + testservers.Etcd(t).Addr() },
	"zookeeper": func(t testing.TB) string { return "zookeeper://" + testservers.ZooKeeper(t, "tickTime=2000").Addr() },
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

// databaseOf returns host:port/database of an empty one.
func databaseOf(t testing.TB, p *dbserver.Product) string { return p.Make(t, p.Shared(t)).At() }

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
