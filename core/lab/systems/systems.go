// Systems says what of packages and their tests would not compile on another system:
//
//	systems windows/386 PACKAGE…
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "systems: it is used as systems OS/ARCH PACKAGE…")
		os.Exit(2)
	}
	code, err := system(os.Args[1], os.Args[2:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "systems:", err)
		code = 2
	}
	os.Exit(code)
}

// system says what would not compile of packages and their tests on another system. It
// checks types, for which go vet would compile all that they import: minutes of work on a
// machine with empty caches.
func system(name string, patterns []string, out io.Writer) (code int, err error) {
	goos, goarch, ok := strings.Cut(name, "/")
	if !ok {
		return 0, fmt.Errorf("%s is no system; write it like windows/386", name)
	}
	here, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedTypesInfo | packages.NeedSyntax,
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		Tests: true,
		ParseFile: func(fset *token.FileSet, file string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
			// The main package of a test is in the build cache, by another kind of name.
			if own := strings.HasPrefix(file, here+string(filepath.Separator)) || filepath.Ext(file) != ".go"; !own && f != nil {
				hollow(f)
			}
			return f, err
		},
	}, patterns...)
	switch {
	case err != nil:
		return 0, err
	case len(found) == 0:
		return 0, fmt.Errorf("there are no packages %s", strings.Join(patterns, " "))
	}
	told := map[string]bool{}
	for _, p := range found {
		for _, e := range p.Errors {
			// A package is there once more with its tests.
			if text := e.Error(); !told[text] {
				told[text] = true
				if _, err := fmt.Fprintf(out, "%s: %s\n", name, text); err != nil {
					return 0, err
				}
			}
		}
	}
	return min(len(told), 1), nil
}

// hollow leaves of a file what others may need of it.
func hollow(f *ast.File) {
	for _, d := range f.Decls {
		switch d, ok := d.(*ast.FuncDecl); {
		case !ok || d.Body == nil:
		case d.Type.Results == nil:
			d.Body.List = nil
		default:
			d.Body = nil // an empty one would lack its return
		}
	}
}
