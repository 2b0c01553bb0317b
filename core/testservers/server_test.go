package testservers_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testservers.Main{M: m}) }

func ask(t *testing.T, s *testservers.Server, want string, words ...string) {
	t.Helper()
	if got, err := s.Do(words...); err != nil || got != want {
		t.Errorf("%v: %q, %v; want %q", words, got, err, want)
	}
}

func TestRestartedServerIsEmptyOnTheSamePort(t *testing.T) {
	s := testservers.Redis(t)
	addr := s.Addr()
	ask(t, s, "OK", "SET", "k", "v")
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("the server moved from %s to %s", addr, s.Addr())
	}
	ask(t, s, "0", "EXISTS", "k")
}

func TestKilledServerIsGone(t *testing.T) {
	s := testservers.Redis(t)
	s.Kill()
	s.Kill()
	if got, err := s.Do("PING"); err == nil {
		t.Errorf("a killed server answers %q", got)
	}
}

func TestPausedServerKeepsItsData(t *testing.T) {
	s := testservers.Redis(t)
	ask(t, s, "OK", "SET", "k", "v")
	s.Pause()
	s.Resume()
	ask(t, s, "1", "EXISTS", "k")
}

func TestArgumentsReachTheServer(t *testing.T) {
	s := testservers.Redis(t, "--maxmemory", "1")
	if got, err := s.Do("SET", "k", "v"); err == nil || !strings.HasPrefix(err.Error(), "OOM ") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAnswerThatIsAListHasALineForEachOfItsParts(t *testing.T) {
	s := testservers.Redis(t)
	ask(t, s, "3", "RPUSH", "list", "a word", "", "b")
	ask(t, s, "a word\n\nb", "LRANGE", "list", "0", "-1")
	ask(t, s, "", "GET", "nothing")
}

// TestEachServerAnswersWhenItIsReadyAndAgainAfterItsFaults dials each, since only clients know more.
func TestEachServerAnswersWhenItIsReadyAndAgainAfterItsFaults(t *testing.T) {
	for product, start := range map[string]func(testing.TB, ...string) *testservers.Server{
		"Redis": testservers.Redis, "Valkey": testservers.Valkey, "etcd": testservers.Etcd, "ZooKeeper": testservers.ZooKeeper,
		"PostgreSQL": testservers.PostgreSQL, "MariaDB": testservers.MariaDB,
	} {
		t.Run(product, func(t *testing.T) {
			s := start(t)
			addr := s.Addr()
			answers := func(when string) {
				t.Helper()
				if s.Addr() != addr {
					t.Errorf("%s: it moved from %s to %s", when, addr, s.Addr())
				}
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				_ = conn.Close()
			}
			answers("at first")
			if !strings.HasPrefix(s.Version(), product+" ") {
				t.Errorf("its version is %q", s.Version())
			}
			s.Pause()
			s.Resume()
			answers("after a pause")
			s.Kill()
			if conn, err := net.Dial("tcp", addr); err == nil {
				_ = conn.Close()
				t.Error("a killed server takes connections")
			}
			s.Restart()
			answers("after it was killed")
			s.Stop()
			s.Stop()
			s.Restart()
			answers("after it was stopped")
			s.Pause() // which does not keep it from ending with the test
		})
	}
}

func TestServerIsReadyWhenWhatItIsAskedBesidesSaysSo(t *testing.T) {
	s := testservers.Redis(t)
	asked := 0
	s.ReadyWhen(func() error {
		if asked++; asked%3 != 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if asked != 3 {
		t.Errorf("it was asked %d times at first", asked)
	}
	if s.Restart(); asked != 6 {
		t.Errorf("it was asked %d times when it had started again", asked)
	}
}

var shared = testservers.Share(testservers.Redis)

func TestSharedServerOutlastsTheTestThatStartedIt(t *testing.T) {
	addr := ""
	for range 2 {
		t.Run("one", func(t *testing.T) {
			s := shared.For(t)
			if addr != "" && addr != s.Addr() {
				t.Errorf("it moved from %s to %s", addr, s.Addr())
			}
			addr = s.Addr()
			ask(t, s, "PONG", "PING")
		})
	}
}
