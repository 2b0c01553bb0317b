package main

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// What is set up on an engine or a guard has two forms. One begins with New and returns an error. The other
// is a noun or a verb, panics with that error, and says so.
func TestConstructorsThatBeginWithNewReturnAnErrorAndNoOthersDo(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	found := 0
	for _, surface := range []string{"middleware", "interceptor", "decorator"} {
		err := filepath.WalkDir(filepath.Join(root, surface), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if name := d.Name(); name == "internal" || name == "testdata" || name == "lockgen" || name == "lockvet" {
				return filepath.SkipDir
			}
			for _, f := range functions(t, path) {
				found++
				name, results := f.Decl.Name.Name, f.Decl.Type.Results
				last := types.ExprString(results.List[len(results.List)-1].Type)
				switch isNew := strings.HasPrefix(name, "New"); {
				case isNew != (last == "error"):
					t.Errorf("%s: %s returns %s", path, name, last)
				case !isNew && !strings.Contains(f.Doc, "panic"):
					t.Errorf("%s: %s does not say that it panics", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 20 {
		t.Errorf("%d constructors were found", found)
	}
}

// functions returns the exported functions of a folder that set something up on an engine or a guard.
func functions(t *testing.T, folder string) (all []*doc.Func) {
	set := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil
	}
	d, err := doc.NewFromFiles(set, files, folder)
	if err != nil {
		t.Fatal(err)
	}
	candidates := d.Funcs
	for _, typ := range d.Types {
		candidates = append(candidates, typ.Funcs...)
	}
	for _, f := range candidates {
		of := f.Decl.Type.Params.List
		if len(of) == 0 || f.Decl.Type.Results == nil {
			continue
		}
		if first := types.ExprString(of[0].Type); first == "*core.Engine" || first == "fence.Guard" {
			all = append(all, f)
		}
	}
	return all
}
