package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// root is the path of the module that all others require.
const root = "github.com/lockaround/lockaround"

// modules are the folders of the modules that users fetch.
var modules = []string{".", "core/etcdlock", "core/lockctl", "core/zklock", "decorator/lockgen", "decorator/lockvet", "decorator/queue/zkqueue"}

// publish writes the modules of a tree into a folder that is a module proxy, each with that
// version, and with requirements of that version of the others. Other versions stay.
func publish(tree, version, proxy string, out io.Writer) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is no version; write it like v0.1.0", version)
	}
	staged, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staged) }()
	if err := stage(tree, staged); err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(staged, "LICENSE"))
	if err != nil {
		return err
	}
	for _, folder := range modules {
		path, err := require(filepath.Join(staged, folder, "go.mod"), version)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(staged, folder, "LICENSE"), license, 0o644); err != nil { // all may read what is published
			return err
		}
		if err := add(filepath.Join(staged, folder), module.Version{Path: path, Version: version}, proxy); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		_, _ = fmt.Fprintf(out, "%s@%s\n", path, version)
	}
	return nil
}

// stage copies the files of a tree that belong to the repository, with what has changed in
// them.
func stage(tree, into string) error {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir, list.Stderr = tree, os.Stderr
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files in %s: %w", tree, err)
	}
	for name := range strings.SplitSeq(string(names), "\x00") {
		if name == "" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(tree, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed
		}
		if err != nil {
			return err
		}
		target := filepath.Join(into, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// require writes that version into a go.mod for each other module of the repository that it
// requires, and returns the path of its own.
func require(file, version string) (path string, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	f, err := modfile.Parse(file, content, nil)
	if err != nil {
		return "", err
	}
	path = f.Module.Mod.Path
	for _, r := range f.Replace {
		return "", fmt.Errorf("%s replaces %s: who runs a program of the module from outside is refused", path, r.Old.Path)
	}
	for _, r := range f.Require {
		if r.Mod.Path == root || strings.HasPrefix(r.Mod.Path, root+"/") {
			if err := f.AddRequire(r.Mod.Path, version); err != nil {
				return "", err
			}
		}
	}
	if content, err = f.Format(); err != nil {
		return "", err
	}
	return path, os.WriteFile(file, content, 0o644)
}

// add writes a module's files into the folder of a proxy, as `go help goproxy` says.
func add(folder string, m module.Version, proxy string) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	at := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := zip.CreateFromDir(&archive, m, folder); err != nil {
		return err
	}
	gomod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	list, err := os.ReadFile(filepath.Join(at, "list"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !strings.Contains("\n"+string(list), "\n"+m.Version+"\n") {
		list = append(list, m.Version+"\n"...)
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{m.Version + ".zip", archive.Bytes()}, {m.Version + ".mod", gomod}, {m.Version + ".info", info}, {"list", list}} { // the list last: it says that the others are there
		if err := os.WriteFile(filepath.Join(at, file.name), file.content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
