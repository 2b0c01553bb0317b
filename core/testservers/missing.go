package testservers

import (
	"os"
	"os/exec"
	"testing"
)

// Missing skips a test that needs something which is not installed, or fails it if the environment
// says LOCKAROUND_REQUIRE_SERVERS=1. It does not return.
func Missing(tb testing.TB, what string, err error) {
	tb.Helper()
	if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
		tb.Fatalf("%s is required by LOCKAROUND_REQUIRE_SERVERS: %v", what, err)
	}
	tb.Skipf("needs %s: %v", what, err)
}

// Need is [Missing] unless there is a program in PATH.
func Need(tb testing.TB, program string) {
	tb.Helper()
	if _, err := exec.LookPath(program); err != nil {
		Missing(tb, program+" in PATH", err)
	}
}
