package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReleasesAreMadeOneAfterTheOther makes two releases of a copy of the tree, and has
// another module go from the one to the other.
func TestReleasesAreMadeOneAfterTheOther(t *testing.T) {
	if testing.Short() {
		t.Skip("makes several releases")
	}
	copied := &outside{T: t, folder: t.TempDir()}
	if err := stage(tree, copied.folder); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(filepath.Join(copied.folder, ".ci", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		if err := os.Chmod(s, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"AUTHOR", "COMMITTER"} {
		copied.env = append(copied.env, "GIT_"+name+"_NAME=release", "GIT_"+name+"_EMAIL=release@example.com")
	}
	copied.env = append(os.Environ(), copied.env...)
	proxy := t.TempDir()
	commit := func(subject string) {
		t.Helper()
		copied.run("git", "add", "-A")
		copied.run("git", "commit", "-q", "-m", subject)
	}
	refused := func(why string, words ...string) {
		t.Helper()
		cmd := exec.Command("bash", append([]string{".ci/release"}, words...)...)
		cmd.Dir, cmd.Env = copied.folder, copied.env
		if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), why) {
			t.Errorf("release %v: %v, %s; want %q", words, err, said, why)
		}
	}
	copied.run("git", "init", "-q")
	commit("core: begin")

	// The go command keeps an index of a version's files by its name, for good.
	now := time.Now().UnixNano()
	first, second := fmt.Sprintf("v0.1.%d", now), fmt.Sprintf("v0.2.%d", now)
	refused("is no version", "0.1.0")
	refused("is no version", "v2.0.0")
	env := copied.env
	with := func(makes, goes string) { copied.env = append(env, path(t, makes, goes)) }
	with("exit", `case "$1 $3" in "test "* | "run api") exit ;; esac`)
	copied.run("bash", ".ci/release", first, proxy)
	refused("does not come after "+first, first, proxy)
	copied.write("core/added.go", "package core\n\n// Added is new.\nconst Added = 1\n")
	refused("not committed", second, proxy)
	commit("core: add a constant")
	state := func() string {
		return copied.run("git", "rev-parse", "HEAD") + copied.run("git", "tag") + copied.run("git", "status", "--porcelain")
	}
	before := state()
	copied.write(".bin/taken", "by a file")
	refused("not a directory", second, ".bin/taken")
	with("echo a check fails; exit 1", "")
	refused("a check fails", second, proxy)
	with("exit", `if [ "$1" = test ]; then echo a stranger fails; exit 1; fi`)
	refused("a stranger fails", second, proxy)
	if after := state(); after != before {
		t.Errorf("a release that was not made leaves\n%swhere there was\n%s", after, before)
	}
	// The other tests of this package show what strangers fetch, and what is said of two trees.
	with("exit", `case "$1 $3" in "test "*) exit ;; "run api") git -C "$4" tag --points-at HEAD; exit ;; esac`)
	copied.run("bash", ".ci/release", second, proxy)

	tags := strings.Fields(copied.run("git", "tag"))
	for _, m := range modules {
		for _, v := range []string{first, second} {
			if tag := strings.TrimPrefix(m+"/"+v, "./"); !strings.Contains(" "+strings.Join(tags, " ")+" ", " "+tag+" ") {
				t.Errorf("the tags are %v, without %s", tags, tag)
			}
		}
	}
	changes, err := os.ReadFile(filepath.Join(copied.folder, ".github", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Changes\n\n## " + second + ", ", "\n## " + first + ", ", "\n" + first + "\n", "\n- core: add a constant\n"} {
		if strings.Count(string(changes), want) != 1 {
			t.Errorf("the changes are\n%s\nwithout %q", changes, want)
		}
	}

	o := fetching(t, proxy, first, second)
	driver := root + "/core/etcdlock"
	for _, v := range []string{first, second} {
		o.run("go", "get", driver+"@"+v)
		if got := o.run("go", "list", "-m", root); got != root+" "+v+"\n" {
			t.Errorf("with %s@%s there is %s", driver, v, got)
		}
	}
	o.write("main.go", "package main\n\nimport (\n\t\"github.com/lockaround/lockaround/core\"\n\t_ \""+driver+"\"\n)\n\nfunc main() { println(core.Added) }\n")
	o.run("go", "mod", "tidy")
	o.run("go", "build", "-o", os.DevNull, ".")
}

// path is the environment's PATH behind a folder whose make and go do that before what they do.
func path(t *testing.T, makes, goes string) string {
	t.Helper()
	folder := t.TempDir()
	for name, before := range map[string]string{"make": makes, "go": goes} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+before+"\nexec "+real+` "$@"`+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return "PATH=" + folder + ":" + os.Getenv("PATH")
}
