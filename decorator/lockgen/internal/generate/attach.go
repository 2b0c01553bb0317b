package generate

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/packages"

	"github.com/lockaround/lockaround/decorator/lockgen/internal/directive"
)

// source is a package whose directives are looked at.
type source struct {
	*packages.Package
	judge   *judge
	guarded []*guarded // in the order of the source
	byFunc  map[*types.Func]*guarded
	faults  []Fault
}

// guarded is a function or a method that has directives.
type guarded struct {
	fn    *types.Func
	owner *types.TypeName // of a method; otherwise nil
	name  *ast.Ident
	typ   *ast.FuncType
	marks []mark
	lame  bool // a fault was found, so that it is not to be generated
}

// mark is a directive at its place.
type mark struct {
	directive.Directive
	pos token.Pos // of the comment
}

func (m mark) at(offset int) token.Pos { return m.pos + token.Pos(offset) }

func (s *source) fault(at token.Pos, text string) {
	s.faults = append(s.faults, Fault{s.Fset.Position(at), text})
}

// attach finds the directives of a package and what they stand on.
func (s *source) attach() {
	s.byFunc = map[*types.Func]*guarded{}
	for _, file := range s.Syntax {
		var partial bool
		for i, group := range file.Comments {
			if group.Pos() > file.Package {
				partial = constrained(s.Fset.Position(file.Package).Filename, file.Comments[:i])
				break
			}
		}
		at := map[*ast.CommentGroup]*guarded{}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Doc != nil {
					at[decl.Doc] = &guarded{name: decl.Name, typ: decl.Type, owner: s.owner(decl)}
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						s.offer(spec, at)
					}
				}
			}
		}
		var strays strays
		for _, group := range file.Comments {
			g := at[group]
			for _, comment := range group.List {
				is, wrong := directive.Recognize(comment.Text)
				switch {
				case wrong != nil:
					s.fault(comment.Pos()+token.Pos(wrong.At), wrong.Text)
				case is && partial:
					s.fault(comment.Pos(), "the file is not built everywhere, by its name or its build constraint, but the generated one would be; move what the directive stands on to a file that is always built")
				case is && g == nil:
					s.fault(comment.Pos(), strays.why(s.Fset, file, group))
				case is:
					s.read(g, comment)
				}
			}
			if g != nil && len(g.marks) > 0 && s.mayStandOn(g, file) {
				s.guarded = append(s.guarded, g)
				s.byFunc[g.fn] = g
			}
		}
	}
}

// offer adds the methods of a named interface.
func (s *source) offer(spec *ast.TypeSpec, at map[*ast.CommentGroup]*guarded) {
	owner, _ := s.TypesInfo.Defs[spec.Name].(*types.TypeName)
	body, ok := ast.Unparen(spec.Type).(*ast.InterfaceType)
	if !ok || owner == nil || spec.Assign.IsValid() {
		return
	}
	for _, method := range body.Methods.List {
		if typ, ok := method.Type.(*ast.FuncType); ok && method.Doc != nil && len(method.Names) == 1 {
			at[method.Doc] = &guarded{name: method.Names[0], typ: typ, owner: owner}
		}
	}
}

// owner is the type that a method belongs to; nil for a function, or if it is not known.
func (s *source) owner(decl *ast.FuncDecl) *types.TypeName {
	if fn, ok := s.TypesInfo.Defs[decl.Name].(*types.Func); ok && receiver(fn) != nil {
		return receiver(fn).Obj()
	}
	return nil
}

// receiver is the type that declares a method, or nil.
func receiver(fn *types.Func) *types.Named {
	if fn.Signature().Recv() == nil {
		return nil
	}
	t := types.Unalias(fn.Signature().Recv().Type())
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	named, _ := t.(*types.Named)
	return named
}

// read adds a directive.
func (s *source) read(g *guarded, comment *ast.Comment) {
	d, wrong := directive.Parse(comment.Text)
	m := mark{d, comment.Pos()}
	for _, fault := range wrong {
		g.lame = true
		s.fault(m.at(fault.At), fault.Text)
	}
	g.marks = append(g.marks, m)
}

// mayStandOn reports whether there can be a lock around g, and otherwise says why not.
func (s *source) mayStandOn(g *guarded, file *ast.File) bool {
	pos, name := g.marks[0].pos, g.name.Name
	fn, ok := s.TypesInfo.Defs[g.name].(*types.Func)
	switch {
	case name == "_":
		s.fault(pos, "the directive is on _, which nobody can call; name the function")
		return false
	case g.owner == nil && (name == "init" || name == "main" && file.Name.Name == "main"):
		s.fault(pos, "the directive is on "+name+", which Go calls by itself, without a lock; put it on a function that "+name+" calls")
		return false
	case !ok || g.owner == nil && fn.Signature().Recv() != nil:
		s.fault(pos, "the receiver of "+name+" is not known; let it be a type of this package")
		return false
	}
	g.fn = fn
	return true
}

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
