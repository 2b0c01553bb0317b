package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	pkg  = `"Package":"github.com/lockaround/lockaround/core"`
	fine = `{"Action":"run",` + pkg + `,"Test":"TestFine"}
{"Action":"pass",` + pkg + `,"Test":"TestFine"}
`
	parts = `{"Action":"run",` + pkg + `,"Test":"TestParts"}
{"Action":"run",` + pkg + `,"Test":"TestParts/good"}
{"Action":"run",` + pkg + `,"Test":"TestParts/bad"}
{"Action":"output",` + pkg + `,"Test":"TestParts/bad","Output":"    x_test.go:3: it is late\n"}
{"Action":"pass",` + pkg + `,"Test":"TestParts/good"}
{"Action":"fail",` + pkg + `,"Test":"TestParts/bad"}
{"Action":"fail",` + pkg + `,"Test":"TestParts"}
`
	skips = `{"Action":"run",` + pkg + `,"Test":"TestServer"}
{"Action":"output",` + pkg + `,"Test":"TestServer","Output":"    server.go:50: needs redis-server in PATH\n"}
{"Action":"skip",` + pkg + `,"Test":"TestServer"}
`
	passes = `{"Action":"pass",` + pkg + `}
`
	fails = `{"Action":"output",` + pkg + `,"Output":"a goroutine is left\n"}
{"Action":"fail",` + pkg + `}
`
	unbuilt = `{"ImportPath":"github.com/lockaround/lockaround/core","Action":"build-output","Output":"x.go:1: no such thing\n"}
{"ImportPath":"github.com/lockaround/lockaround/core","Action":"build-fail"}
{"Action":"fail",` + pkg + `}
`
)

// logged writes logs into a folder.
func logged(t *testing.T, logs ...string) string {
	t.Helper()
	folder := t.TempDir()
	for i, log := range logs {
		if err := os.WriteFile(filepath.Join(folder, string(rune('a'+i))+".json"), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestEachTestIsCountedOnceAndFailuresAreRed(t *testing.T) {
	for _, tt := range []struct {
		name string
		logs []string
		last string
		code int
	}{
		{"passes", []string{fine + passes}, "tests: 1 passed, 0 failed, 0 skipped", 0},
		{"a part fails", []string{fine + parts + fails}, "tests: 2 passed, 1 failed, 0 skipped", 1},
		{"is skipped", []string{fine + skips + passes}, "tests: 1 passed, 0 failed, 1 skipped", 0},
		{"only skipped", []string{skips + passes}, "tests: 0 passed, 0 failed, 1 skipped", 1},
		{"nothing", []string{passes}, "tests: 0 passed, 0 failed, 0 skipped", 1},
		{"the package fails by itself", []string{fine + fails}, "tests: 1 passed, 1 failed, 0 skipped", 1},
		{"does not build", []string{unbuilt}, "tests: 0 passed, 1 failed, 0 skipped", 1},
		{"twice, with other releases", []string{fine + passes, fine + fails}, "tests: 2 passed, 1 failed, 0 skipped", 1},
		{"cut off", []string{fine + strings.TrimSuffix(parts, parts[strings.Index(parts, `{"Action":"fail"`):])}, "tests: 2 passed, 1 failed, 0 skipped", 1},
		{"cut off between tests", []string{`{"Action":"start",` + pkg + "}\n" + fine}, "tests: 1 passed, 1 failed, 0 skipped", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			code, err := do([]string{"count", logged(t, tt.logs...)}, &out)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := lines[len(lines)-1]; got != tt.last || code != tt.code {
				t.Errorf("%q, code %d; want %q, %d", got, code, tt.last, tt.code)
			}
		})
	}
}

func TestReasonsOfSkipsAndNamesOfFailuresAreTold(t *testing.T) {
	var out bytes.Buffer
	if _, err := do([]string{"count", logged(t, fine+parts+skips+fails)}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 skipped: needs redis-server in PATH\n", " failed: core TestParts/bad\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

func TestWatcherReadsWhatFailed(t *testing.T) {
	var r results
	var told []string
	for line := range strings.Lines(fine + parts + skips + fails) {
		told = append(told, r.add([]byte(line))...)
	}
	if len(told) != 2 || !strings.Contains(told[0], "it is late") || !strings.Contains(told[1], "FAIL core") {
		t.Errorf("one who watches reads %q", told)
	}
}

func TestFolderWithoutLogsIsAnError(t *testing.T) {
	if _, err := do([]string{"count", t.TempDir()}, new(bytes.Buffer)); err == nil {
		t.Error("nothing was counted")
	}
}

func TestTableTellsHowOftenEachFailed(t *testing.T) {
	red, green, broken := logged(t, fine+parts+fails), logged(t, fine+passes), logged(t, fine+passes)
	for folder, said := range map[string]string{red: "test, 9 s, exit 2", green: "test, 8 s, exit 0", broken: "test, 1 s, exit 2"} {
		if err := os.WriteFile(filepath.Join(folder, "run"), []byte(said+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	code, err := do([]string{"flakes", red, green, broken, red}, &out)
	if err != nil || code != 1 {
		t.Errorf("code %d, %v", code, err)
	}
	lines := strings.Split(out.String(), "\n")
	name := filepath.Base(red)
	if want := "| core TestParts/bad | 2 | " + name + ", " + name + " |"; !slices.Contains(lines, want) {
		t.Errorf("%q is not in\n%s", want, &out)
	}
	if want := "| (no test: see its output) | 1 | " + filepath.Base(broken) + " |"; !slices.Contains(lines, want) {
		t.Errorf("%q is not in\n%s", want, &out)
	}
	out.Reset()
	if code, err := do([]string{"flakes", green}, &out); err != nil || code != 0 {
		t.Errorf("a green run: code %d, %v\n%s", code, err, &out)
	}
}
