package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

// compare writes what the packages of two trees export differently: what breaks users first.
func compare(old, next string, out io.Writer) error {
	before, err := exported(old, packages.NeedTypes)
	if err != nil {
		return err
	}
	after, err := exported(next, packages.NeedTypes)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] == nil {
			_, _ = fmt.Fprintf(out, "- %s: the package is gone\n", path)
			continue
		}
		for _, c := range apidiff.Changes(before[path].Types, after[path].Types).Changes {
			mark := "-"
			if c.Compatible {
				mark = "+"
			}
			_, _ = fmt.Fprintf(out, "%s %s: %s\n", mark, path, c.Message)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if before[path] == nil {
			_, _ = fmt.Fprintf(out, "+ %s: the package is new\n", path)
		}
	}
	return nil
}

// exported are the packages of a tree's modules that others can import, by their path, with their
// names and what else is asked for. Types are those that the compiler has written down: to read
// the source of all that is imported would take gigabytes.
func exported(tree string, more packages.LoadMode) (map[string]*packages.Package, error) {
	all := make(map[string]*packages.Package)
	for _, folder := range modules {
		if _, err := os.Stat(filepath.Join(tree, folder, "go.mod")); errors.Is(err, os.ErrNotExist) {
			continue // of an older release, which did not have it
		}
		found, err := packages.Load(&packages.Config{
			Mode: packages.NeedName | packages.NeedFiles | more,
			Dir:  filepath.Join(tree, folder),
			Env:  os.Environ(),
		}, "./...")
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			for _, e := range p.Errors {
				return nil, fmt.Errorf("%s: %w", p.PkgPath, e)
			}
			if len(p.GoFiles) > 0 && p.Name != "main" && !slices.Contains(strings.Split(p.PkgPath, "/"), "internal") {
				all[p.PkgPath] = p
			}
		}
	}
	return all, nil
}
