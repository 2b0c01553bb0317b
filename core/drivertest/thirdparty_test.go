package drivertest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestThirdPartyNeedsExportedAPIOnly builds and tests a module that is not this
// one. It holds a driver, which passes this suite, and HTTP middleware, which
// excludes between two engines on that driver.
func TestThirdPartyNeedsExportedAPIOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles and tests another module")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/thirdparty")); err != nil {
		t.Fatal(err)
	}
	// It requires what this module requires, so that nothing is downloaded.
	ours, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(ours)
	if name == nil {
		t.Fatal("go.mod of this module has no module line")
	}
	theirs := bytes.Replace(ours, name[0], []byte("module example.com/thirdparty"), 1)
	theirs = append(theirs, "\nrequire "+string(name[1])+" v0.0.0\nreplace "+string(name[1])+" => "+root+"\n"...)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{"go.mod": theirs, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=2m", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off", "GOPROXY=off", "PWD="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test in a third party's module: %v\n%s", err, out)
	}
}
