package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lockgen runs the command in a folder.
func lockgen(t *testing.T, dir string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(dir, args, &out, &err)
	return status, out.String(), err.String()
}

// Each folder of testdata/wrong has a file of its name with what lockgen says about it.
func TestEachWrongDirectiveGetsItsMessage(t *testing.T) {
	dir := filepath.Join("testdata", "wrong")
	status, stdout, stderr := lockgen(t, dir, "./...")
	if status != wrong || stdout != "" {
		t.Errorf("status %d, %q", status, stdout)
	}
	said := map[string]string{}
	for line := range strings.Lines(stderr) {
		theme, _, ok := strings.Cut(line, "/")
		if !ok {
			t.Errorf("without a file: %s", line)
		}
		said[theme] += line
	}
	folders, err := filepath.Glob(filepath.Join(dir, "*", ""))
	if err != nil || len(folders) == 0 {
		t.Fatal(err)
	}
	for _, folder := range folders {
		theme := filepath.Base(folder)
		if strings.HasSuffix(theme, ".golden") {
			continue
		}
		t.Run(theme, func(t *testing.T) {
			golden := folder + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(said[theme]), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got := said[theme]; got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
	if written, _ := filepath.Glob(filepath.Join(dir, "*", "lock_gen.go")); len(written) > 0 {
		t.Errorf("code was written for what is wrong: %v", written)
	}
}

// The generated files of testdata/good are compiled into this test, which runs them.
func TestGeneratedCodeIsWhatItWas(t *testing.T) {
	dir := filepath.Join("testdata", "good")
	if *update {
		if status, _, stderr := lockgen(t, dir, "./..."); status != done {
			t.Fatal(stderr)
		}
	}
	if status, _, stderr := lockgen(t, dir, "-check", "./..."); status != done || stderr != "" {
		t.Errorf("status %d, %s; with -update this test writes the files anew", status, stderr)
	}
}

func TestGeneratedCodePassesVet(t *testing.T) {
	vet := exec.CommandContext(t.Context(), "go", "vet", "./testdata/good/...")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
