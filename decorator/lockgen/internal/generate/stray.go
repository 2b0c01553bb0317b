package generate

import (
	"fmt"
	"go/ast"
	"go/token"
)

// strays knows why the directives of a file that stand on nothing do so.
type strays map[*ast.CommentGroup]string

const instead = "; it goes on a function, a method, or a method of an interface"

// why says what a group of comments stands on instead of a function.
func (s *strays) why(fset *token.FileSet, file *ast.File, group *ast.CommentGroup) string {
	if *s == nil {
		*s = strays{}
		s.collect(file)
	}
	if text, ok := (*s)[group]; ok {
		return text
	}
	if next := following(file, group); next != nil {
		if decl, ok := next.(*ast.FuncDecl); ok {
			return fmt.Sprintf("a blank line parts the directive from %s, so it stands on nothing; remove the line", decl.Name.Name)
		}
		return fmt.Sprintf("a blank line parts the directive from %s, so it stands on nothing; remove the line", next.(*ast.Field).Names[0].Name)
	}
	return "the directive stands on nothing" + instead
}

// collect notes what has comments and can have no lock.
func (s strays) collect(file *ast.File) {
	note := func(what string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if _, known := s[g]; !known && g != nil {
				s[g] = what
			}
		}
	}
	note("the directive is on the package"+instead, file.Doc)
	for _, decl := range file.Decls {
		if decl, ok := decl.(*ast.FuncDecl); ok && decl.Body != nil {
			for _, g := range file.Comments {
				if decl.Body.Pos() <= g.Pos() && g.End() <= decl.Body.End() {
					note("the directive is inside of "+decl.Name.Name+"; there is no lock around local functions, so make it a function of the package", g)
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			note("the directive is on "+map[token.Token]string{
				token.IMPORT: "an import", token.CONST: "a constant", token.VAR: "a variable", token.TYPE: "a type",
			}[n.Tok]+instead, n.Doc)
		case *ast.ImportSpec:
			note("the directive is on an import"+instead, n.Doc, n.Comment)
		case *ast.ValueSpec:
			note("the directive is on a variable or constant"+instead, n.Doc, n.Comment)
		case *ast.TypeSpec:
			note("the directive is on a type"+instead, n.Doc, n.Comment)
		case *ast.StructType:
			for _, f := range n.Fields.List {
				note("the directive is on a field of a struct"+instead, f.Doc, f.Comment)
			}
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				if len(f.Names) == 0 {
					note("the directive is on an embedded interface; declare the method that it is meant for once more, and put it there", f.Doc, f.Comment)
					continue
				}
				note("the directive is on a method of an interface that has no name of its own; declare the interface as a type", f.Doc)
				note("the directive is behind "+f.Names[0].Name+"; put it on the line above", f.Comment)
			}
		case *ast.FuncType:
			for _, f := range n.Params.List {
				note("the directive is on a parameter"+instead, f.Doc, f.Comment)
			}
		}
		return true
	})
}

// following is the function or method that comes next after a group of comments, with
// nothing but comments and blank lines between them, or nil.
func following(file *ast.File, group *ast.CommentGroup) ast.Node {
	var next ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommentGroup, *ast.Comment, nil:
			return false
		case ast.Node:
			if n.Pos() >= group.End() && (next == nil || n.Pos() < next.Pos()) {
				next = n
			}
		}
		return true
	})
	switch n := next.(type) {
	case *ast.FuncDecl:
		return n
	case *ast.Field:
		if _, method := n.Type.(*ast.FuncType); method && len(n.Names) == 1 {
			return n
		}
	}
	return nil
}
