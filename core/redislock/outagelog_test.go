package redislock_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// spoiled is a way to have a server not do what a lock needs, and what the log says of it.
type spoiled struct {
	name  string
	spoil func(*testing.T, *testservers.Server)
	mend  func(*testing.T, *testservers.Server)
	want  []string
}

// settings is that by a setting of the server.
func settings(name, setting, bad, good string) spoiled {
	return spoiled{
		name,
		func(t *testing.T, s *testservers.Server) { command(t, s, "CONFIG", "SET", setting, bad) },
		func(t *testing.T, s *testservers.Server) { command(t, s, "CONFIG", "SET", setting, good) },
		[]string{`msg="lockaround: the store refuses what a lock needs"`, name},
	}
}

// command sends a server a command.
func command(t *testing.T, s *testservers.Server, words ...any) {
	t.Helper()
	if err := newClient(t, redis.Options{Addr: s.Addr()}).Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
}

// What an operator reads when the server is gone, when it knows another password and when it
// grants too little: one line for each, with what the server or the system said, and one when
// it is over.
func TestOutageIsTwoLinesOfTheLog(t *testing.T) {
	t.Parallel()
	for _, tc := range []spoiled{
		{
			"connection refused",
			func(_ *testing.T, s *testservers.Server) { s.Kill() },
			func(t *testing.T, s *testservers.Server) {
				s.Restart()
				user(t, s, minimalACL)
			},
			[]string{`msg="lockaround: the store does not answer: nobody acquires a lock, and leases end at their deadlines"`, "connect: connection refused"},
		},
		{
			"WRONGPASS",
			func(t *testing.T, s *testservers.Server) { setUser(t, s, "<secret", ">other") },
			func(t *testing.T, s *testservers.Server) { setUser(t, s, ">secret") },
			[]string{`msg="lockaround: the store refuses what a lock needs"`, "WRONGPASS"},
		},
		{
			"NOPERM",
			func(t *testing.T, s *testservers.Server) { setUser(t, s, "-set") },
			func(t *testing.T, s *testservers.Server) { setUser(t, s, "+set") },
			[]string{`msg="lockaround: the store refuses what a lock needs"`, "NOPERM"},
		},
		{
			"a right that is missing for the token",
			func(t *testing.T, s *testservers.Server) { setUser(t, s, "-xadd") },
			func(t *testing.T, s *testservers.Server) { setUser(t, s, "+xadd") },
			[]string{`msg="lockaround: the store refuses what a lock needs"`, "NOPERM"},
		},
		// It answers each try, but refuses for now.
		settings("NOREPLICAS", "min-replicas-to-write", "1", "0"),
		{
			"READONLY",
			func(t *testing.T, s *testservers.Server) { command(t, s, "REPLICAOF", "127.0.0.1", "1") },
			func(t *testing.T, s *testservers.Server) { command(t, s, "REPLICAOF", "NO", "ONE") },
			[]string{`msg="lockaround: the store refuses what a lock needs"`, "READONLY"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := testservers.Redis(t)
			as := redis.Options{Addr: server.Addr()}
			user(t, server, minimalACL)(&as)
			tc.spoil(t, server)
			log := &lines{}
			e, err := core.New(redislock.New(newClient(t, as)), core.WithNamespace("test"), core.WithStoreTimeout(attempt), core.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			ask := func() error {
				return e.Do(t.Context(), core.Policy{Name: "stock", Key: "stock:A"}, func(context.Context) error { return nil })
			}
			for range 4 {
				if err := ask(); err == nil {
					t.Fatal("a lock was granted")
				} else if strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "127.0.0.1") {
					t.Errorf("the error tells what the store said: %v", err)
				}
			}
			if got := log.all(); len(got) != 1 || !strings.HasPrefix(got[0], "level=ERROR "+tc.want[0]) || !strings.Contains(got[0], tc.want[1]) {
				t.Errorf("%d lines, want one with %q:\n%s", len(got), tc.want, strings.Join(got, "\n"))
			}
			tc.mend(t, server)
			eventually(t, "a lock", func() bool { return ask() == nil })
			for range 4 {
				_ = ask()
			}
			got := log.all()
			if len(got) != 2 || !strings.HasPrefix(got[1], `level=INFO msg="lockaround: the store answers again" lock.driver=redis after=`) {
				t.Errorf("after it:\n%s", strings.Join(got, "\n"))
			}
			t.Log("\n" + strings.Join(got, "\n"))
		})
	}
}

// setUser changes what user has made.
func setUser(t *testing.T, s *testservers.Server, rules ...string) {
	t.Helper()
	if answer, err := s.Do(append([]string{"ACL", "SETUSER", "locks"}, rules...)...); err != nil {
		t.Fatalf("ACL SETUSER: %s, %v", answer, err)
	}
}

// lines are those of a log, without their times.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, line, _ := strings.Cut(strings.TrimSpace(string(p)), " ")
	l.text = append(l.text, line)
	return len(p), nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}
