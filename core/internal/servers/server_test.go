package servers

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script returns a daemon that is a shell's script.
func script(t *testing.T, text string, ready func() error) *Server {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skipf("needs sh: %v", err)
	}
	d := &Server{Cmd: exec.Command("sh", "-c", text), Log: filepath.Join(t.TempDir(), "log"), Ready: ready}
	t.Cleanup(func() {
		if err := d.Kill(); err != nil {
			t.Error(err)
		}
	})
	return d
}

var errSilent = errors.New("it is silent")

func TestErrorOfOneThatEndsHasItsLastWords(t *testing.T) {
	d := script(t, "echo no room; exit 1", func() error { return errSilent })
	if err := d.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("the error is %v", err)
	}
	if d.Serves() {
		t.Error("it is said to serve")
	}
}

func TestStartIsGivenUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := script(t, "exec sleep 1000", func() error { cancel(); return errSilent })
	if err := d.Start(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, errSilent) {
		t.Errorf("the error is %v", err)
	}
	if d.Serves() {
		t.Error("it runs")
	}
}

func TestOneThatStoppedServesAgainWhenItGoesOnOrRestarts(t *testing.T) {
	d := script(t, "exec sleep 1000", func() error { return nil })
	resume := func() error { return d.Resume(t.Context()) }
	if err := resume(); err != nil { // which leaves one that has not started alone
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, again := range []func() error{resume, func() error { return d.Restart(t.Context()) }} {
		if err := d.Stop(); err != nil {
			t.Fatal(err)
		}
		if d.Serves() {
			t.Error("one that was stopped serves")
		}
		if err := again(); err != nil {
			t.Fatal(err)
		}
		if !d.Serves() {
			t.Error("it does not serve again")
		}
	}
	if err := errors.Join(d.Retire(), d.Retire()); err != nil {
		t.Error(err)
	}
}
