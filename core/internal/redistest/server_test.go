package redistest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(t *testing.T, s *redistest.Server, want string, words ...string) {
	t.Helper()
	if got, err := s.Do(words...); err != nil || got != want {
		t.Errorf("%v: %q, %v; want %q", words, got, err, want)
	}
}

func TestRestartedServerIsEmptyOnTheSamePort(t *testing.T) {
	s := redistest.Start(t)
	addr := s.Addr()
	ask(t, s, "+OK", "SET", "k", "v")
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("the server moved from %s to %s", addr, s.Addr())
	}
	ask(t, s, ":0", "EXISTS", "k")
}

func TestKilledServerIsGone(t *testing.T) {
	s := redistest.Start(t)
	s.Kill()
	s.Kill()
	if got, err := s.Do("PING"); err == nil {
		t.Errorf("a killed server answers %q", got)
	}
}

func TestPausedServerKeepsItsData(t *testing.T) {
	s := redistest.Start(t)
	ask(t, s, "+OK", "SET", "k", "v")
	s.Stop()
	s.Cont()
	ask(t, s, ":1", "EXISTS", "k")
}

func TestArgumentsReachTheServer(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "1")
	if got, err := s.Do("SET", "k", "v"); err != nil || len(got) < 4 || got[:4] != "-OOM" {
		t.Errorf("%q, %v", got, err)
	}
}
