package generate

import (
	"encoding/json"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

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
