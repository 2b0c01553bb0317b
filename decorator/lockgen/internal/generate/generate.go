// Package generate writes the code for //lock:with directives: it finds the packages
// that have some, checks them against their types, and renders one file for each package.
package generate

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"

	"golang.org/x/tools/go/packages"
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
