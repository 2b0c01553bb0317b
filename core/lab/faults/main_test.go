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

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
}
