package resource_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, log func(history.Event)) (*resource.Server, *resource.Client) {
	t.Helper()
	folder, err := os.MkdirTemp("", "resource") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	s, err := resource.Serve(path, log)
	if err != nil {
		t.Fatal(err)
	}
	c, err := resource.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(folder)
	})
	return s, c
}

func ask(t *testing.T, c *resource.Client, r resource.Request) resource.Reply {
	t.Helper()
	reply, err := c.Ask(r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestGuardRefusesWhatIsBelowTheLargestToken(t *testing.T) {
	var mu sync.Mutex
	var log []history.Event
	s, c := serve(t, func(e history.Event) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, e)
	})
	read := func(token int64) resource.Reply {
		return ask(t, c, resource.Request{Process: 1, Client: 1, Key: "k", Token: token})
	}
	write := func(token, value int64) resource.Reply {
		return ask(t, c, resource.Request{Process: 1, Client: 1, Key: "k", Token: token, Write: true, Value: value})
	}
	if r := write(5, 1); r.Error != "" || r.Value != 1 {
		t.Errorf("the first write: %+v", r)
	}
	if r := read(7); r.Error != "" || r.Value != 1 {
		t.Errorf("a read of the next holder: %+v", r)
	}
	if r := write(6, 2); r.Error != history.Stale {
		t.Errorf("a late write: %+v", r)
	}
	if r := read(6); r.Error != history.Stale {
		t.Errorf("a late read: %+v", r)
	}
	if got := s.Counter("k"); got != 1 || s.Writes() != 1 {
		t.Errorf("the counter is %d after %d writes", got, s.Writes())
	}
	mu.Lock()
	defer mu.Unlock()
	if len(log) != 4 || log[0].Op != history.Write || log[2].Error != history.Stale || log[3].Return < log[3].Call {
		t.Errorf("the log is %+v", log)
	}
}

func TestWhoIsInsideIsKnownUntilHeWritesOrHasGone(t *testing.T) {
	s, c := serve(t, func(history.Event) {})
	all := func(int) bool { return true }
	began := time.Now()
	for p := 1; p <= 3; p++ {
		ask(t, c, resource.Request{Process: p, Client: 1, Key: "k", Token: int64(p)})
	}
	if who, d := s.Inside(all); who.Process != 1 || d <= 0 {
		t.Errorf("%+v is inside for %v, want process 1", who, d)
	}
	if d := s.EnteredSince(began); d <= 0 || s.EnteredSince(time.Now()) != 0 {
		t.Errorf("somebody is inside for %v since the beginning, and for %v since now", d, s.EnteredSince(time.Now()))
	}
	if who, _ := s.Inside(func(p int) bool { return p > 1 }); who.Process != 2 {
		t.Errorf("%+v is inside of the others, want process 2", who)
	}
	ask(t, c, resource.Request{Process: 1, Client: 1, Key: "k", Token: 1, Write: true, Value: 1}) // refused
	s.Gone(2)
	if who, _ := s.Inside(all); who.Process != 3 {
		t.Errorf("%+v is inside, want process 3", who)
	}
	ask(t, c, resource.Request{Process: 3, Client: 1, Key: "k", Token: 3, Write: true, Value: 1})
	if who, d := s.Inside(all); d != 0 {
		t.Errorf("%+v is inside for %v, want nobody", who, d)
	}
}

func TestReadersAreRefusedForAWriterOnly(t *testing.T) {
	s, c := serve(t, func(history.Event) {})
	for _, step := range []struct {
		what  string
		token int64
		mode  string
		write bool
		want  string
	}{
		{"the first writer", 5, "", true, ""},
		{"a reader", 8, history.Shared, false, ""},
		{"another one with a smaller token", 7, history.Shared, false, ""},
		{"a writer before both", 6, "", true, history.Stale},
		{"one before the largest of them", 7, "", true, history.Stale},
		{"a reader before the first writer", 4, history.Semaphore, false, history.Stale},
		{"the next writer", 9, "", true, ""},
		{"a reader before that", 8, history.Shared, false, history.Stale},
	} {
		r := ask(t, c, resource.Request{Process: 1, Client: 1, Key: "k", Token: step.token, Mode: step.mode, Write: step.write, Last: true})
		if r.Error != step.want {
			t.Errorf("%s, token %d: %q, want %q", step.what, step.token, r.Error, step.want)
		}
	}
	if who, d := s.Inside(func(int) bool { return true }); d != 0 {
		t.Errorf("%+v is inside after his last request", who)
	}
}
