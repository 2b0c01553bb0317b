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
	// What this machine lacks, the copy goes without as well.
	if missing, err := os.ReadFile(filepath.Join(tree, ".bin", "missing")); err == nil {
		copied.write(".bin/missing", string(missing))
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
	copied.run("bash", ".ci/release", first, proxy)
	refused("does not come after "+first, first, proxy)
	copied.write("core/added.go", "package core\n\n// Added is new.\nconst Added = 1\n")
	refused("not committed", second, proxy)
	commit("core: add a constant")
	state := func() string {
		return copied.run("git", "rev-parse", "HEAD") + copied.run("git", "tag") + copied.run("git", "status", "--porcelain")
	}
	before, env := state(), copied.env
	copied.env = append(env, "PATH="+unchecked(t)+":"+os.Getenv("PATH"))
	copied.write(".bin/taken", "by a file")
	refused("not a directory", second, ".bin/taken")
	if after := state(); after != before {
		t.Errorf("a release that could not be published leaves\n%swhere there was\n%s", after, before)
	}
	copied.env = env
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
	for _, want := range []string{"# Changes\n\n## " + second + ", ", "\n## " + first + ", ", "\n+ " + root + "/core: Added: added\n", "\n- core: add a constant\n"} {
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

// unchecked is a folder with programs that let each check of a release pass at once.
func unchecked(t *testing.T) string {
	t.Helper()
	goes, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, script := range map[string]string{"make": "", "go": `[ "$1" = test ] || exec ` + goes + ` "$@"`} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
