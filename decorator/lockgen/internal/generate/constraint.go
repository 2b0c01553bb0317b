package generate

import (
	"go/ast"
	"go/build/constraint"
	"path/filepath"
	"slices"
	"strings"
)

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
