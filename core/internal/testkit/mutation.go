package testkit

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Mutant is a bug, and how it is looked for.
type Mutant struct {
	File string   // with the bug
	Old  string   // occurs once in the file
	Bug  string   // in its place
	Of   []string // the files of tests in the folder of the test that the run is made of, which is compiled sooner; none: all
	Args []string // of go test, beside the bug: what to run, in which package
	Env  []string // beside the environment
	Sign []string // of a failure, any of them, in the line that says what was found
}

// running has room for as many runs as there are processors: a test that runs in parallel is mostly a compiler.
var running = make(chan struct{}, runtime.GOMAXPROCS(0))

// MustBeFound fails the test unless a run with the bug fails, and says so with a sign. It skips the
// test without the go command. The run has the lowest dependencies, not the workspace's: go-redis 9.23 makes
// the compiler take 1.5 s longer for each package that imports it.
func (m Mutant) MustBeFound(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("needs the go command: %v", err)
	}
	running <- struct{}{}
	defer func() { <-running }()
	args := append([]string{"test", "-count=1", "-vet=off", "-timeout=5m", "-overlay", m.overlay(t)}, m.Args...)
	cmd := exec.Command("go", args...)
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), m.Env...)
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err == nil {
		t.Fatalf("nothing fails with %q in the place of %q", m.Bug, m.Old)
	}
	for line := range strings.Lines(text) {
		for _, sign := range m.Sign {
			if strings.Contains(line, sign) {
				t.Log(strings.TrimSpace(line))
				return
			}
		}
	}
	t.Errorf("the run fails for another reason: %v\n%s", err, text[max(0, len(text)-2000):])
}

// overlay returns the name of a file for -overlay, with which the go command reads the bug.
func (m Mutant) overlay(t *testing.T) string {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	file, err := filepath.Abs(m.File)
	must(err)
	source, err := os.ReadFile(file)
	must(err)
	if n := strings.Count(string(source), m.Old); n != 1 {
		t.Fatalf("%s holds the text to replace %d times; it must be there once", m.File, n)
	}
	dir := t.TempDir()
	mutated, list := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	must(os.WriteFile(mutated, []byte(strings.Replace(string(source), m.Old, m.Bug, 1)), 0o600))
	replaced := map[string]string{file: mutated}
	if len(m.Of) > 0 {
		tests, err := filepath.Glob("*_test.go")
		must(err)
		for _, name := range tests {
			path, err := filepath.Abs(name)
			must(err)
			if !slices.Contains(m.Of, name) {
				replaced[path] = "" // as if it were not there
			}
		}
	}
	replace, err := json.Marshal(map[string]any{"Replace": replaced})
	must(err)
	must(os.WriteFile(list, replace, 0o600))
	return list
}
