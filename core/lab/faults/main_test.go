package main

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary a worker too.
func TestMain(m *testing.M) {
	// Workers with the race detector would wait a second at their end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	if job, ok := os.LookupEnv(jobVariable); ok {
		os.Exit(work(job, os.Stdin))
	}
	goleak.VerifyTestMain(m)
}

func need(t *testing.T, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	needed(t, err)
}

// needed fails the test if there is an error, and skips it if a server is not installed.
func needed(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case !errors.Is(err, exec.ErrNotFound):
		t.Fatal(err)
	case os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1":
		t.Fatalf("a server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
	default:
		t.Skipf("needs a server: %v", err)
	}
}
