// Package generate writes the code for //lock:with directives: it finds the packages
// that have some, checks them against their types, and renders one file for each package.
//
// # Files
//
// In the order in which a directive passes them: generate.go finds the packages and loads them;
// attach.go finds which function a directive is for; check.go checks its policy; once.go checks a
// function that runs once for each key; key.go says where the values of the key come from; plan.go chooses what is generated; writer.go begins the file, with
// its names and imports; wrapper.go writes the code of one wrapper.
package generate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/lockaround/lockaround/decorator/lockgen/internal/directive"
)

// Config says what to generate.
type Config struct {
	Dir      string   // where the patterns count from; empty is the working directory
	Patterns []string // of packages, as the go command has them
	Output   string   // name of the file to write in each package
	Version  string   // of the generator, for the header
}

// File is a file that is to be written.
type File struct {
	Path    string // absolute
	Content []byte // nil if the file is to be removed
}

// Fault is something wrong in the source.
type Fault struct {
	Pos  token.Position // may be without a line, or invalid
	Text string         // what is wrong and what would be right
}

// String is the fault in the form that editors read.
func (f Fault) String() string {
	if f.Pos.Filename == "" {
		return f.Text
	}
	return fmt.Sprintf("%v: %s", f.Pos, f.Text)
}

// Run returns the files to write, sorted by path: one for each package with directives,
// and a removal for each file that the generator wrote where there are none any more.
// With any fault there are no files. Faults are sorted by position. The error is that of
// the go command.
func Run(c Config) ([]File, []Fault, error) {
	folders, faults, err := survey(c)
	if err != nil {
		return nil, nil, err
	}
	judge, err := newJudge()
	if err != nil {
		return nil, nil, err
	}
	defer judge.close()
	packages, err := load(c, folders)
	if err != nil {
		return nil, nil, err
	}
	var files []File
	for _, f := range folders {
		content, wrong, err := generate(c, packages[f.path], judge)
		if err != nil {
			return nil, nil, err
		}
		faults = append(faults, wrong...)
		if content != nil {
			file, wrong := f.output(c, content)
			files, faults = append(files, file), append(faults, wrong...)
		}
		files = append(files, f.stale(c, content != nil)...)
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b Fault) int {
			return cmp.Or(
				cmp.Compare(a.Pos.Filename, b.Pos.Filename), cmp.Compare(a.Pos.Line, b.Pos.Line),
				cmp.Compare(a.Pos.Column, b.Pos.Column), cmp.Compare(a.Text, b.Text))
		})
		return nil, slices.Compact(faults), nil
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return files, nil, nil
}

// generate returns the content of a package's file; nil if the package has no directives
// or has faults.
func generate(c Config, p *packages.Package, judge *judge) ([]byte, []Fault, error) {
	if p == nil {
		return nil, nil, nil
	}
	if faults := unreadable(p); len(faults) > 0 {
		return nil, faults, nil
	}
	s := &source{Package: p, judge: judge}
	s.attach()
	parts := s.plan()
	if len(parts) == 0 || len(s.faults) > 0 {
		return nil, s.faults, nil
	}
	content, err := newWriter(s, parts).file(c.Version)
	return content, nil, err
}

// folder is a package as it lies on the disk.
type folder struct {
	path      string   // import path
	dir       string   // absolute
	own       []string // files that the generator wrote, absolute
	annotated bool     // a file that is built has a directive, or what looks like one
}

// survey finds the packages that the patterns name, without type-checking any. What looks
// like a directive in a file that is not built is a fault.
func survey(c Config) ([]*folder, []Fault, error) {
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedModule, Dir: c.Dir,
	}, c.Patterns...)
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return nil, nil, fmt.Errorf("%s: no packages match; a pattern is a folder such as . or ./..., or an import path", strings.Join(c.Patterns, " "))
	}
	var folders []*folder
	var faults []Fault
	for _, p := range found {
		if p.Dir == "" || p.PkgPath == "command-line-arguments" {
			text := p.ID + ": no folder of a package; name the package's folder"
			if len(p.Errors) > 0 {
				text = p.Errors[0].Msg
			}
			return nil, nil, errors.New(text)
		}
		if p.Module == nil || !p.Module.Main {
			return nil, nil, fmt.Errorf("%s: it is no package of this module; code is generated where the directives are", p.PkgPath)
		}
		f := &folder{path: p.PkgPath, dir: p.Dir}
		wrong, err := f.look(p.GoFiles)
		if err != nil {
			return nil, nil, err
		}
		folders, faults = append(folders, f), append(faults, wrong...)
	}
	return folders, faults, nil
}

// look reads the folder's Go files, of which some are built.
func (f *folder) look(built []string) ([]Fault, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	var faults []Fault
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || filepath.Ext(name) != ".go" || strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(f.dir, name)
		source, err := os.ReadFile(path)
		switch {
		case err != nil:
			return nil, err
		case isOwn(source):
			f.own = append(f.own, path)
		case !mentionsDirective(source):
		case slices.Contains(built, path):
			f.annotated = true
		default:
			faults = append(faults, unbuilt(path, source)...)
		}
	}
	return faults, nil
}

// header is the first line of a file that the generator wrote.
var header = regexp.MustCompile(`^// Code generated by lockgen \(.*\); DO NOT EDIT\.\r?\n`)

func isOwn(source []byte) bool { return header.Match(source) }

// SameCode reports whether two files that the generator wrote differ in its version at most.
func SameCode(a, b []byte) bool {
	return bytes.Equal(header.ReplaceAllLiteral(a, nil), header.ReplaceAllLiteral(b, nil))
}

// mentionsDirective reports whether there may be a directive, or what was meant as one:
// it takes strings for comments.
func mentionsDirective(source []byte) bool {
	for line := range strings.Lines(string(source)) {
		line = strings.TrimRight(line, "\r\n")
		for at := range line {
			if rest := line[at:]; strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") {
				if is, fault := directive.Recognize(rest); is || fault != nil {
					return true
				}
			}
		}
	}
	return false
}

// unbuilt reports the directives of a file that is no part of the package.
func unbuilt(path string, source []byte) []Fault {
	fset := token.NewFileSet()
	file, _ := parser.ParseFile(fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if file == nil {
		return nil
	}
	var faults []Fault
	for _, group := range file.Comments {
		for _, comment := range group.List {
			is, wrong := directive.Recognize(comment.Text)
			switch {
			case wrong != nil:
				faults = append(faults, Fault{fset.Position(comment.Pos() + token.Pos(wrong.At)), wrong.Text})
			case !is:
			case strings.HasSuffix(path, "_test.go"):
				faults = append(faults, Fault{fset.Position(comment.Pos()), "a directive in a _test.go file does nothing, as no code is generated for tests; move what it stands on to another file"})
			default:
				faults = append(faults, Fault{fset.Position(comment.Pos()), "the file is not built here, by its name or its build constraint, so the directive does nothing; move what it stands on to a file that is always built"})
			}
		}
	}
	return faults
}

// output is the file with the package's code, and what stands in its way.
func (f *folder) output(c Config, content []byte) (File, []Fault) {
	file := File{Path: filepath.Join(f.dir, c.Output), Content: content}
	if slices.Contains(f.own, file.Path) {
		return file, nil
	}
	if _, err := os.Lstat(file.Path); !errors.Is(err, fs.ErrNotExist) {
		return file, []Fault{{token.Position{Filename: file.Path}, "the file is in the way and was not written by lockgen; rename it, or give another name with -o"}}
	}
	return file, nil
}

// stale returns removals of what the generator wrote and would not write now.
func (f *folder) stale(c Config, written bool) []File {
	var files []File
	for _, path := range f.own {
		if !written || filepath.Base(path) != c.Output {
			files = append(files, File{Path: path})
		}
	}
	return files
}

// CheckOutput returns why a name cannot be that of the generated file, or nothing.
func CheckOutput(name string) string {
	switch {
	case name != filepath.Base(name) || filepath.Ext(name) != ".go" || name == ".go":
		return "it is no name of a Go file; write one such as lock_gen.go, without a folder"
	case strings.HasPrefix(name, "_") || strings.HasPrefix(name, "."):
		return "Go does not build files whose name begins like that"
	case strings.HasSuffix(name, "_test.go"):
		return "the code would be there for tests only"
	case constrained(name, nil):
		return "Go builds a file of that name on some systems only"
	}
	return ""
}

// constrained reports whether a file is not built everywhere, by its name or by the
// comments that it begins with, so that the file of the whole package must not use it.
func constrained(path string, comments []*ast.CommentGroup) bool {
	parts := strings.Split(strings.TrimSuffix(filepath.Base(path), ".go"), "_")
	for _, part := range parts[max(1, len(parts)-2):] {
		if slices.Contains(systems, part) {
			return true
		}
	}
	for _, group := range comments {
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil && needsMore(expr) {
				return true
			}
		}
	}
	return false
}

// needsMore reports whether a constraint asks for anything besides a release of Go.
func needsMore(expr constraint.Expr) bool {
	switch e := expr.(type) {
	case *constraint.TagExpr:
		return !strings.HasPrefix(e.Tag, "go1.")
	case *constraint.NotExpr:
		return needsMore(e.X)
	case *constraint.AndExpr:
		return needsMore(e.X) || needsMore(e.Y)
	case *constraint.OrExpr:
		return needsMore(e.X) || needsMore(e.Y)
	}
	return false
}

// systems are the names that Go takes for one of an operating system or a processor at
// the end of a file's name.
var systems = strings.Fields(`
	aix android darwin dragonfly freebsd hurd illumos ios js linux nacl netbsd openbsd plan9 solaris wasip1 windows zos
	386 amd64 amd64p32 arm armbe arm64 arm64be loong64 mips mipsle mips64 mips64le mips64p32 mips64p32le ppc ppc64
	ppc64le riscv riscv64 s390 s390x sparc sparc64 wasm`)

// load type-checks the folders that have directives, as if the generator had written
// nothing yet: its last output may be broken, or not be there. Code that uses what is to
// be generated does not type-check then, which is no fault by itself.
func load(c Config, folders []*folder) (map[string]*packages.Package, error) {
	var paths []string
	without := map[string]string{}
	for _, f := range folders {
		if f.annotated {
			paths = append(paths, f.path)
		}
		for _, own := range f.own {
			without[own] = ""
		}
	}
	loaded := map[string]*packages.Package{}
	if len(paths) == 0 {
		return loaded, nil
	}
	overlay, remove, err := writeOverlay(without)
	if err != nil {
		return nil, err
	}
	defer remove()
	// The overlay is for the go command alone: package packages would parse all
	// dependencies for the sake of one of its own.
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
		Dir: c.Dir, BuildFlags: []string{"-overlay=" + overlay},
	}, paths...)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		loaded[p.PkgPath] = p
	}
	return loaded, nil
}

// writeOverlay writes a file for the go command's -overlay.
func writeOverlay(replace map[string]string) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "lockgen-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		path = filepath.Join(dir, "overlay.json")
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// unreadable are the faults for which a package cannot be looked at: its directives, or
// what they stand on, may be missing in its syntax.
func unreadable(p *packages.Package) []Fault {
	var faults []Fault
	for _, e := range p.Errors {
		if e.Kind == packages.ParseError || e.Kind == packages.ListError && len(p.Syntax) == 0 {
			faults = append(faults, Fault{position(e.Pos), e.Msg})
		}
	}
	return faults
}

// position reads file:line:column, or less; "-" and nothing are no position.
func position(text string) (p token.Position) {
	if text == "" || text == "-" {
		return p
	}
	p.Filename = text
	for _, n := range []*int{&p.Column, &p.Line} {
		i := strings.LastIndexByte(p.Filename, ':')
		if i < 0 {
			break
		}
		value, err := strconv.Atoi(p.Filename[i+1:])
		if err != nil {
			break
		}
		*n, p.Filename = value, p.Filename[:i]
	}
	if p.Line == 0 {
		p.Line, p.Column = p.Column, 0
	}
	return p
}
