package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoVetRunsTheChecks goes the users' way: facts travel from package to package, and the exit
// status says that there were reports.
func TestGoVetRunsTheChecks(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "lockvet")
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	vet := func(args ...string) (string, error) {
		cmd := exec.Command("go", append([]string{"vet", "-vettool=" + tool}, args...)...)
		cmd.Dir, cmd.Env = "testdata", append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	said, err := vet("./bypass/...")
	for _, want := range []string{
		"bypass/stock/stock.go:31:12: Deduct has a //lock:with directive",
		"bypass/use/bad.go:14:12: Deduct has a //lock:with directive",
		"bypass/use/bad.go:19:9: Refill has a //lock:with directive",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("go vet did not say %q; it said\n%s", want, said)
		}
	}
	if err == nil {
		t.Error("go vet succeeded")
	}
	if said, err := vet("-lockbypass=false", "./bypass/..."); err != nil {
		t.Errorf("without the check: %v\n%s", err, said)
	}
}
