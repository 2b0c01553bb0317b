package main

import (
	"errors"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestMain makes the test binary a worker too.
func TestMain(m *testing.M) {
	child.Main(child.Roles{role: work})
	goleak.VerifyTestMain(m)
}

// needed fails the test if there is an error, and skips it if a server is not installed.
func needed(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) {
		testservers.Missing(t, "a server", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
