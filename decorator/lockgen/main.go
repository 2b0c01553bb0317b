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

const help = `lockgen generates the code for //lock:with directives.

usage: lockgen [-check] [-o name] [package ...]

Packages are as the go command has them: folders, import paths, ./... and so on;
without any it is the one in the working directory. In each that has directives
lockgen writes one file; where there are none any more it removes its own.

  -check    write nothing; exit with 1 if a file is not what lockgen would write
  -o name   of the file, in the package's folder (lock_gen.go)
  -version  print the version
  -h        print this

A directive stands right above a function, a method, or a method of an interface:

  //go:generate go tool -modfile=../tools.mod lockgen

  type Stock interface {
  	//lock:with "stock:{sku}" wait=2s ttl=10s
  	Deduct(ctx context.Context, sku string, n int) (left int, err error)
  }

That gives a type StockWithLock, whose Deduct holds the lock, and
NewStockWithLock(locks, next) to put it around another Stock. A function
Refill gets a RefillLocked(locks), which returns it with the lock.

In the template, {name} is a parameter and {req.Order.ID} a field of one: strings,
integers and bools. Several directives are several keys, all or none, and so is a
list: {req.Items[].SKU}. Options:

  wait=2s, wait=forever  for a key that is taken; without it, as core.WithDefaults says
  maxwaiting=100         with a wait: how many may wait for the key
  ttl=10s                how long the key stays taken if the process dies
  mode=shared            or exclusive; or semaphore, with limit=3
  name=deduct            in errors and telemetry, instead of the template
  maxhold=1m minhold=5s linger=1s norenew reentrant
  fairness=strict tokens=durable release=sent
  allowempty             lets a call go without the key of an empty list
  when=needsLock         a function or method; where it returns false there is no lock
  once=refuse keep=24h   runs once for each key, by records that NewStockWithLock(locks,
                         records, next) takes, and keeps the results for so long; a call
                         whose run died is refused, or once=rerun or tx

All but the last three are fields of core.Policy. Everything is checked: the exit status is 1
after a fault in the source or on the disk, 2 after a wrong command line.

More: https://pkg.go.dev/github.com/lockaround/lockaround/decorator/lockgen
`
