package serialtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// Mistake is put into a source file, to see that tests find it.
type Mistake struct {
	File     string
	Old, New string   // the text that it replaces, which is in the file once, and what it puts there
	By       string   // who is to find it: the folder of tests, a space, and a pattern of their names
	Flags    []string // of go test, besides
}

// MustBeFound expects the tests to fail that are to find the mistake. It compiles and runs them if
// the environment says LOCKAROUND_COUNTS=mutants=1, which takes a minute or so. Otherwise it expects
// only that the text to replace is there. It does not change the file.
func (m Mistake) MustBeFound(t *testing.T) {
	t.Helper()
	file, err := filepath.Abs(m.File)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		t.Fatalf("%s has the text to replace %d times; it must be there once", m.File, n)
	}
	if counts.Of(t, "mutants", 0, 0) == 0 {
		t.Skip("compiles and runs other tests: set " + counts.Asks("mutants", 1))
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(source), m.Old, m.New, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	folder, pattern, _ := strings.Cut(m.By, " ")
	args := append([]string{"test", "-count=1", "-vet=off", "-overlay", list, "-run", pattern}, m.Flags...)
	cmd := exec.Command("go", append(args, folder)...)
	cmd.Env = append(os.Environ(), counts.Variable+"=")
	out, err := cmd.CombinedOutput()
	switch names := failedTests.FindAllStringSubmatch(string(out), 3); {
	case err == nil:
		t.Error("all tests pass")
	case names == nil && !strings.Contains(string(out), "panic: "):
		t.Errorf("the run fails for another reason: %v\n%s", err, out[max(0, len(out)-2000):])
	default:
		t.Log(names)
	}
}

var failedTests = regexp.MustCompile(`--- FAIL: (\S+)`)
