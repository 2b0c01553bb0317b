package generate

import (
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/decorator/internal/keyfield"
)

// part is what is generated for a type with guarded methods, or for a guarded function.
type part struct {
	owner  *types.TypeName // nil for a function
	locks  []*lock         // of the methods; one of a function
	params *types.TypeParamList

	made, maker string // what is generated: the type and its constructor; a function has the latter alone
	next        string // the alias of the owner
}

// once reports whether a part has calls that run once, and so needs a store of their records.
func (p *part) once() bool {
	return slices.ContainsFunc(p.locks, func(l *lock) bool { return l.once != "" })
}

// plan checks what is guarded, and returns what is to be generated, in the order of the
// source.
func (s *source) plan() []*part {
	var parts []*part
	checked := map[*guarded]*lock{}
	for _, g := range s.guarded {
		checked[g] = s.check(g, g.fn.Signature())
		switch {
		case g.owner == nil:
			if l := checked[g]; l != nil {
				s.checkWhen(l, nil)
				parts = append(parts, &part{locks: []*lock{l}, params: l.sig.TypeParams()})
			}
		case !slices.ContainsFunc(parts, func(p *part) bool { return p.owner == g.owner }):
			parts = append(parts, &part{owner: g.owner})
		}
	}
	for _, p := range parts {
		if p.owner != nil {
			s.methods(p, checked)
		}
		s.entitle(p)
	}
	if len(parts) > 0 {
		s.overridden(parts)
		s.redeclared(parts)
	}
	return parts
}

// overridden finds methods without a directive that hide one with a directive: calls of
// them are not locked, though they look as if they were.
func (s *source) overridden(parts []*part) {
	scope := s.Types.Scope()
	for _, name := range scope.Names() {
		owner, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || owner.IsAlias() {
			continue
		}
		named, ok := owner.Type().(*types.Named)
		if !ok || types.IsInterface(named) {
			continue
		}
		generated := slices.ContainsFunc(parts, func(p *part) bool { return p.owner == owner })
		for m := range named.Methods() {
			if s.byFunc[m] != nil {
				continue
			}
			if g := s.promoted(named, m.Name(), generated, nil); g != nil {
				s.fault(m.Pos(), fmt.Sprintf("%s of %s hides that of %s, which has a directive, and has none itself, so that calls of it are not locked; put a directive on it, or give it another name",
					m.Name(), name, g.owner.Name()))
			}
		}
	}
}

// promoted returns a guarded method that a struct would have from what it embeds if it did
// not declare it. An interface counts only if code is generated for the struct: what has
// one inside may well be there to call it.
func (s *source) promoted(named *types.Named, method string, interfaces bool, within []*types.Named) *guarded {
	body, ok := named.Underlying().(*types.Struct)
	if !ok || slices.Contains(within, named) {
		return nil
	}
	for f := range body.Fields() {
		inner, ok := types.Unalias(keyfield.Pointee(f.Type())).(*types.Named)
		if !f.Embedded() || !ok || inner.Obj().Pkg() != s.Types || types.IsInterface(inner) && !interfaces {
			continue
		}
		for _, g := range s.guarded {
			if g.owner == inner.Obj() && g.name.Name == method {
				return g
			}
		}
		if g := s.promoted(inner.Origin(), method, interfaces, append(within, named)); g != nil {
			return g
		}
	}
	return nil
}

// redeclared finds what generated code could not mean by its name in this package.
func (s *source) redeclared(parts []*part) {
	names := []string{"nil", "string", "error", "byte", "bool", "int64", "uint64", "append"}
	if slices.ContainsFunc(parts, func(p *part) bool { return slices.ContainsFunc(p.locks, (*lock).hasList) }) {
		names = append(names, "int", "len")
	}
	for _, name := range names {
		if other := s.Types.Scope().Lookup(name); other != nil {
			s.fault(other.Pos(), fmt.Sprintf("the package declares %s, and generated code needs Go's own; rename it", name))
		}
	}
}

// methods collects the guarded methods of a type, those promoted to it included.
func (s *source) methods(p *part, checked map[*guarded]*lock) {
	named := p.owner.Type().(*types.Named)
	before := len(s.faults)
	p.params = named.TypeParams()
	for t := range p.params.TypeParams() {
		if t.Obj().Name() == "_" {
			s.fault(t.Obj().Pos(), fmt.Sprintf("a type parameter of %s is called _; name it, so that the generated code can", p.owner.Name()))
		}
	}
	body, isInterface := named.Underlying().(*types.Interface)
	if isInterface && !body.IsMethodSet() {
		s.fault(p.owner.Pos(), p.owner.Name()+" is a constraint and no type of values, so there is nothing to put a lock around")
	}
	if len(s.faults) > before {
		return
	}
	for name, fn := range methodsOf(named) {
		declaring := named
		if !isInterface {
			declaring = receiver(fn)
		}
		marked := s.marked(declaring, fn, nil)
		switch {
		case len(marked) == 0:
		case len(marked) > 1:
			s.fault(p.owner.Pos(), fmt.Sprintf("%s has directives for %s in %s and in %s; declare the method in %[1]s once more, with the one that is right",
				p.owner.Name(), name, marked[0].owner.Name(), marked[1].owner.Name()))
		case checked[marked[0]] != nil:
			if l := s.check(marked[0], fn.Signature()); l != nil {
				s.checkWhen(l, named)
				p.locks = append(p.locks, l)
			}
		}
	}
	for _, g := range s.guarded {
		if g.owner == p.owner && checked[g] != nil && !slices.ContainsFunc(p.locks, func(l *lock) bool { return l.guarded == g }) {
			s.fault(g.name.Pos(), fmt.Sprintf("%s is no method that can be called on a %s; let the package compile first", g.name.Name, p.owner.Name()))
		}
	}
	slices.SortFunc(p.locks, func(a, b *lock) int { return slices.Index(s.guarded, a.guarded) - slices.Index(s.guarded, b.guarded) })
}

// methodsOf returns the methods of a type's pointer, or of an interface, with the type
// parameters that the type declares.
func methodsOf(named *types.Named) map[string]*types.Func {
	var self types.Type = named
	if params := named.TypeParams(); params.Len() > 0 {
		var own []types.Type
		for p := range params.TypeParams() {
			own = append(own, p)
		}
		if instance, err := types.Instantiate(nil, named, own, false); err == nil {
			self = instance
		}
	}
	if !types.IsInterface(self) {
		self = types.NewPointer(self)
	}
	methods := map[string]*types.Func{}
	for m := range types.NewMethodSet(self).Methods() {
		methods[m.Obj().Name()] = m.Obj().(*types.Func)
	}
	return methods
}

// marked finds what has directives for a method of a type: the method itself, or else,
// if the type is an interface, that of the interfaces of this package that it embeds.
func (s *source) marked(named *types.Named, fn *types.Func, found []*guarded) []*guarded {
	if named == nil || named.Obj().Pkg() != s.Types {
		return found
	}
	body, ok := named.Origin().Underlying().(*types.Interface)
	if !ok {
		if g := s.byFunc[fn.Origin()]; g != nil {
			found = append(found, g)
		}
		return found
	}
	for m := range body.ExplicitMethods() {
		if g := s.byFunc[m]; g != nil && m.Name() == fn.Name() {
			if !slices.Contains(found, g) {
				found = append(found, g)
			}
			return found
		}
	}
	for e := range body.EmbeddedTypes() {
		inner, _ := types.Unalias(e).(*types.Named)
		found = s.marked(inner, fn, found)
	}
	return found
}

// entitle names what is generated. Its names are the user's to type, so they are given and
// not made to fit.
func (s *source) entitle(p *part) {
	var at ast.Node
	if p.owner == nil {
		l := p.locks[0]
		at, p.maker = l.name, l.name.Name+"Locked"
	} else {
		name := p.owner.Name()
		for _, g := range s.guarded {
			if g.owner == p.owner {
				at = g.name
				break
			}
		}
		p.made = name + "WithLock"
		if p.maker = "New" + p.made; !p.owner.Exported() {
			p.maker = "new" + exported(p.made)
		}
	}
	for _, name := range []string{p.made, p.maker} {
		if other := s.Types.Scope().Lookup(name); other != nil && name != "" {
			there := s.Fset.Position(other.Pos())
			s.fault(at.Pos(), fmt.Sprintf("lockgen generates %s, which is declared already in line %d of %s; rename one of them",
				name, there.Line, filepath.Base(there.Filename)))
		}
	}
}

// canWrite reports whether this package can write a type down. It can for all in the
// signatures that it declares, but perhaps not for that of another package's field.
func (s *source) canWrite(t types.Type) bool {
	switch t := t.(type) {
	case *types.Alias:
		return s.canName(t.Obj(), t.TypeArgs())
	case *types.Named:
		return s.canName(t.Obj(), t.TypeArgs())
	case *types.Basic, *types.TypeParam:
		return true
	case *types.Pointer:
		return s.canWrite(t.Elem())
	case *types.Slice:
		return s.canWrite(t.Elem())
	case *types.Array:
		return s.canWrite(t.Elem())
	}
	return false // it would be a long way to a value from any other
}

func (s *source) canName(name *types.TypeName, args *types.TypeList) bool {
	if p := name.Pkg(); p != nil && p != s.Types && !(name.Exported() && mayImport(s.PkgPath, p.Path())) {
		return false
	}
	for t := range args.Types() {
		if !s.canWrite(t) {
			return false
		}
	}
	return true
}

// mayImport is Go's rule about internal and vendored packages.
func mayImport(from, path string) bool {
	for _, element := range []string{"internal", "vendor"} {
		i := strings.LastIndex("/"+path+"/", "/"+element+"/")
		if i < 0 {
			continue
		}
		if parent := strings.TrimSuffix(path[:i], "/"); from != parent && !strings.HasPrefix(from+"/", parent+"/") {
			return false
		}
	}
	return true
}
