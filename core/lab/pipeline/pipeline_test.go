package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachCallerGetsItsOwnReplyEveryWay(t *testing.T) {
	daemon.Need(t, "redis-server")
	out := filepath.Join(t.TempDir(), "out.md")
	if err := compare(t.Context(), out, "", "1,16", 1, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ways {
		if n := strings.Count(string(table), "\n| "+w.name+" |"); n != 5 {
			t.Errorf("%s is in %d tables; want 5", w.name, n)
		}
	}
}

func TestCompareRefusesWhatCannotWork(t *testing.T) {
	for want, try := range map[string]func() error{
		"no number":  func() error { return compare(t.Context(), "", "", "1,x", 1, time.Second) },
		"-only":      func() error { return compare(t.Context(), "", "(", "1", 1, time.Second) },
		"nothing to": func() error { return compare(t.Context(), "", "no such way", "1", 1, time.Second) },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compare: %v; want %q in it", err, want)
		}
	}
}
