package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/lockaround/lockaround/decorator/lockgen/internal/generate"
)

// The exit statuses.
const (
	done  = 0
	wrong = 1 // in the source, or on the disk
	usage = 2
)

func main() { os.Exit(run("", os.Args[1:], os.Stdout, os.Stderr)) }

// run is the command in a folder; empty is the working directory.
func run(dir string, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("lockgen", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	check := flags.Bool("check", false, "")
	output := flags.String("o", "lock_gen.go", "")
	show := flags.Bool("version", false, "")
	say := func(format string, a ...any) { _, _ = fmt.Fprintf(stderr, format+"\n", a...) }
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, help)
		return done
	case err != nil:
		say("lockgen: %v; lockgen -h says more", err)
		return usage
	case *show:
		_, _ = fmt.Fprintln(stdout, "lockgen", version())
		return done
	}
	if fault := generate.CheckOutput(*output); fault != "" {
		say("lockgen: -o %s: %s", *output, fault)
		return usage
	}
	patterns := flags.Args()
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	for _, p := range patterns {
		if strings.HasSuffix(p, ".go") {
			say("lockgen: %s: the argument is a package and not a file; name its folder", p)
			return usage
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		say("lockgen: %v", err)
		return wrong
	}
	files, faults, err := generate.Run(generate.Config{Dir: dir, Patterns: patterns, Output: *output, Version: version()})
	switch {
	case err != nil:
		say("lockgen: %v", err)
		return wrong
	case len(faults) > 0:
		for _, f := range faults {
			f.Pos.Filename = relative(dir, f.Pos.Filename)
			say("%v", f)
		}
		return wrong
	}
	status := done
	for _, f := range files {
		name := relative(dir, f.Path)
		if *check {
			if text := differs(f, generate.SameCode); text != "" {
				say("%s: %s; run go generate", name, text)
				status = wrong
			}
			continue
		}
		if err := write(f); err != nil {
			say("lockgen: %v", err)
			status = wrong
		}
	}
	return status
}

// differs says how a file on the disk is not what it should be, or nothing.
func differs(f generate.File, same func(a, b []byte) bool) string {
	has, err := os.ReadFile(f.Path)
	switch {
	case f.Content == nil:
		return "it was generated for directives that are gone"
	case errors.Is(err, fs.ErrNotExist):
		return "it is missing"
	case err != nil:
		return err.Error()
	case !same(has, f.Content):
		return "it is not what the directives say"
	}
	return ""
}

// write brings the disk to what it should be, and leaves alone what is so already.
func write(f generate.File) error {
	if f.Content == nil {
		return os.Remove(f.Path)
	}
	if differs(f, bytes.Equal) == "" {
		return nil
	}
	return os.WriteFile(f.Path, f.Content, 0o644)
}

// relative is a path as a person in dir would write it.
func relative(dir, path string) string {
	if short, err := filepath.Rel(dir, path); err == nil && !strings.HasPrefix(short, "..") && path != "" {
		return short
	}
	return path
}

// version is the release that the command was built from; devel for what is no release.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Replace != nil || strings.Contains(info.Main.Version, "+dirty") {
		return "devel"
	}
	return strings.Trim(cmp.Or(info.Main.Version, "devel"), "()")
}
