package main

import (
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
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("%s is required by LOCKAROUND_REQUIRE_SERVERS: %v", program, err)
		}
		t.Skipf("needs %s in PATH: %v", program, err)
	}
}
