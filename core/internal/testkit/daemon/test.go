package daemon

import (
	"context"
	"os"
	"os/exec"
	"testing"
)

// Test is a daemon of a test. Its methods fail the test when they cannot do what they say.
type Test struct {
	*Daemon
	T testing.TB
}

// Missing skips a test whose server is not installed, or fails it if the environment says
// LOCKAROUND_REQUIRE_SERVERS=1.
func Missing(t testing.TB, what string, err error) {
	t.Helper()
	if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is required by LOCKAROUND_REQUIRE_SERVERS: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// Need is Missing unless there is a program in PATH.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		Missing(t, program+" in PATH", err)
	}
}

func (s Test) must(what string, err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatalf("%s %s: %v", what, s.Daemon, err)
	}
}

// Kill ends the server with SIGKILL and returns when it is gone and its addresses are free.
// Killing it twice is a no-op.
func (s Test) Kill() {
	s.T.Helper()
	if err := s.Daemon.Kill(); err != nil {
		s.T.Errorf("kill %s: %v", s.Daemon, err)
	}
}

// Restart starts the server again at the same address, after killing it if it still runs,
// and returns when it answers.
func (s Test) Restart() {
	s.T.Helper()
	s.must("restart", s.Daemon.Restart(context.Background()))
}

// Stop pauses the server with SIGSTOP: connections stay, nothing answers.
func (s Test) Stop() {
	s.T.Helper()
	s.must("stop", s.Daemon.Stop())
}

// Cont ends a pause, and returns when the server answers. One that was not stopped, or does
// not run, is left alone.
func (s Test) Cont() { s.ContUntil(s.Ready) }

// ContUntil is Cont with another answer to wait for.
func (s Test) ContUntil(ready func() error) {
	s.T.Helper()
	if !s.stopped || !s.run.Running() {
		return
	}
	s.must("continue", s.Daemon.Cont())
	s.must("continue", s.Await(context.Background(), ready))
}
