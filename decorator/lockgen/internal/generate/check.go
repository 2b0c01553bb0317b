package generate

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/decorator/internal/keyfield"
)

// lock is a function or a method as it is to be generated.
type lock struct {
	*guarded
	sig    *types.Signature // as it is seen from what is generated
	policy core.Policy
	values []value     // one for each name in the templates
	when   *types.Func // says whether a call needs the lock; may be nil
	once   string      // the idempotent.DiedMode of a call that runs once, in lower case; else empty
	keep   time.Duration

	keyType    string // what the code calls the values' type
	guardField string // and where a wrapper has the guard
}

// check checks a guarded function against its signature, and returns what is to be
// generated, or nil after a fault.
func (s *source) check(g *guarded, sig *types.Signature) *lock {
	before := len(s.faults)
	if !s.checkTypes(g) || !s.checkSignature(g, sig) || g.lame {
		return nil
	}
	l := &lock{guarded: g, sig: sig}
	seen := map[string]bool{}
	lists := make([]bool, len(g.marks))
	for i, m := range g.marks {
		if seen[m.Key] {
			s.fault(m.at(m.KeyAt), "the key is there already; remove this directive")
		}
		seen[m.Key] = true
		lists[i] = s.checkTemplate(l, m)
	}
	s.checkPolicy(l, lists)
	s.checkOnce(l, lists)
	if len(s.faults) > before {
		return nil
	}
	return l
}

// checkTypes reports whether the types of a signature are known, and otherwise which is
// not and why.
func (s *source) checkTypes(g *guarded) bool {
	known := true
	ast.Inspect(g.typ, func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok || n == ast.Node(g.typ) || !known {
			return known
		}
		at := expr
		if selector, ok := expr.(*ast.SelectorExpr); ok {
			at = selector.Sel
		}
		if t, typed := s.TypesInfo.Types[expr]; typed && invalid(t.Type) && !holdsTypes(expr) {
			s.fault(expr.Pos(), fmt.Sprintf("%s in the signature of %s is not known: %s", types.ExprString(expr), g.name.Name, s.cause(expr, at)))
			known = false
		}
		return known
	})
	return known
}

// holdsTypes reports whether an expression has others in it that are to blame.
func holdsTypes(expr ast.Expr) bool {
	switch expr.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return false
	}
	return true
}

func invalid(t types.Type) bool {
	b, ok := t.(*types.Basic)
	return ok && b.Kind() == types.Invalid
}

// cause is why the compiler does not know a type.
func (s *source) cause(expr, at ast.Expr) string {
	for _, g := range s.guarded {
		if name, ok := expr.(*ast.Ident); ok && g.owner != nil && name.Name == g.owner.Name()+"WithLock" {
			return "lockgen is about to generate it; use " + g.owner.Name() + " here"
		}
	}
	for _, e := range s.TypeErrors {
		if e.Pos == expr.Pos() || e.Pos == at.Pos() {
			return e.Msg
		}
	}
	if selector, ok := expr.(*ast.SelectorExpr); ok {
		if name, ok := selector.X.(*ast.Ident); ok {
			if imported, ok := s.TypesInfo.Uses[name].(*types.PkgName); ok {
				return "its package " + imported.Imported().Path() + " does not load; let that compile first"
			}
		}
	}
	return "let what it stands for compile first"
}

// checkSignature reports whether there can be a lock around a signature.
func (s *source) checkSignature(g *guarded, sig *types.Signature) bool {
	before := len(s.faults)
	params, results, name := sig.Params(), sig.Results(), g.name.Name
	if params.Len() == 0 || !isContext(params.At(0).Type()) {
		at := g.typ.Params.Opening
		if len(g.typ.Params.List) > 0 {
			at = g.typ.Params.List[0].Pos()
		}
		s.fault(at, fmt.Sprintf("%s has no context.Context as its first parameter; the wait for the lock ends with it, and the lock travels in it", name))
	}
	if n := results.Len(); n == 0 || !types.Identical(results.At(n-1).Type(), types.Universe.Lookup("error").Type()) {
		at := g.typ.Params.Closing
		if g.typ.Results != nil && n > 0 {
			at = g.typ.Results.List[len(g.typ.Results.List)-1].Pos()
		}
		s.fault(at, fmt.Sprintf("%s has no error as its last result; the lock needs one to say that it could not be had, or was lost", name))
	}
	for p := range sig.TypeParams().TypeParams() {
		if p.Obj().Name() == "_" {
			s.fault(p.Obj().Pos(), fmt.Sprintf("a type parameter of %s is called _; name it, so that the generated code can", name))
		}
	}
	return len(s.faults) == before
}

func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Context" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context"
}

// checkPolicy puts the directives of a function together. lists says which templates have lists.
func (s *source) checkPolicy(l *lock, lists []bool) {
	with := -1 // the directive that has the options
	for i, m := range l.marks {
		switch {
		case len(m.Options) == 0:
		case with < 0:
			with, l.policy = i, m.Policy
		default:
			s.fault(m.at(m.Options[0].At), "options stand on one directive of a function only; move these to the one at line "+
				fmt.Sprint(s.Fset.Position(l.marks[with].pos).Line))
		}
	}
	if text := s.judge.policy(l.policy, lists); text != "" {
		at := l.marks[0].pos
		if with >= 0 {
			at = blamed(l.marks[with], text)
		}
		s.fault(at, text)
	}
	if l.policy.Key = l.marks[0].Key; len(l.marks) > 1 || lists[0] {
		l.policy.Key = ""
		for _, m := range l.marks {
			l.policy.Keys = append(l.policy.Keys, m.Key)
		}
	}
}

// blamed is the first option that core's words about a policy name.
func blamed(m mark, text string) token.Pos {
	first, at := len(text), m.pos
	for _, o := range m.Options {
		words := []string{o.Name}
		if o.Name == "mode" || o.Name == "fairness" {
			words = append(words, o.Value) // as in "a Semaphore needs"
		}
		for _, word := range words {
			if i := strings.Index(strings.ToLower(text), word); i >= 0 && i < first {
				first, at = i, m.at(o.At)
			}
		}
	}
	return at
}

// checkTemplate resolves what a template names, and reports whether it has a list.
func (s *source) checkTemplate(l *lock, m mark) (list bool) {
	fault, at := s.judge.template(m.Key, func(name string, at int) {
		list = list || strings.Contains(name, keyfield.ListMark)
		v, in, err := s.resolve(l.name.Name, l.sig, name)
		if err != nil {
			s.fault(m.at(m.OffsetOf(at+in)), fmt.Sprintf("{%s}: %v", name, err))
			return
		}
		for _, other := range l.values {
			if other.name == name {
				return
			}
		}
		l.values = append(l.values, v)
	})
	if fault != "" {
		s.fault(m.at(m.OffsetOf(at)), fault)
		list = list || strings.Contains(m.Key, keyfield.ListMark) // as far as one can tell
	}
	return list
}

// judge asks package core whether policies and templates can work, so that what is
// refused here is what would be refused when the program starts.
type judge struct{ locks *core.Engine }

func newJudge() (*judge, error) {
	locks, err := core.New(anything{}, core.WithNamespace("lockgen"))
	if err != nil {
		return nil, err
	}
	return &judge{locks}, nil
}

func (j *judge) close() { _ = j.locks.Close() } // nothing is held

// policy returns what is wrong with a policy with as many keys as lists, each with a list or
// without, in the words of core but for forever, or nothing. What only some drivers offer is
// not wrong.
func (j *judge) policy(p core.Policy, lists []bool) string {
	p.Key, p.Keys = "", nil
	for i, list := range lists {
		key := fmt.Sprint(i)
		if list {
			key += ":{list[]}"
		}
		p.Keys = append(p.Keys, key)
	}
	_, err := core.NewGuard(j.locks, p, accept)
	return strings.ReplaceAll(detail(err), "core.Forever", "forever")
}

// accept takes any placeholder.
func accept(string) (core.Accessor[struct{}], error) {
	return func(dst []byte, _ struct{}) ([]byte, error) { return dst, nil }, nil
}

// place is where core says that a fault of a template is.
var place = regexp.MustCompile(`^Keys?(?:\[0\])?, column ([0-9]+): `)

// template calls resolve with the name of each placeholder and its offset in the template,
// in their order, and returns what is wrong with the template itself, and where.
func (j *judge) template(text string, resolve func(name string, at int)) (fault string, at int) {
	next := 0
	p := core.Policy{Name: text, Keys: []string{text}}
	_, err := core.NewGuard(j.locks, p, func(name string) (core.Accessor[struct{}], error) {
		next += strings.IndexByte(text[next:], '{') + 1
		resolve(name, next)
		return accept(name)
	})
	fault = strings.ReplaceAll(detail(err), "give each an element of Keys", "give each a directive of its own")
	if found := place.FindStringSubmatch(fault); found != nil {
		fault = fault[len(found[0]):]
		column, _ := strconv.Atoi(found[1])
		for range column - 1 {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
		}
	}
	return fault, at
}

// detail is what is wrong, without where and with which policy.
func detail(err error) string {
	var e *core.Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return ""
}

// anything is a driver that offers whatever a policy may ask for.
type anything struct{ driver.Session }

func (anything) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name: "lockgen", Modes: []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		Tokens: driver.DurableTokens, Strict: true, Keep: true, Oust: true, Recall: true,
	}
}

func (a anything) Open(driver.Config) (driver.Session, error) { return a, nil }
func (anything) Close(context.Context) error                  { return nil }

// hasList reports whether a template has a list.
func (l *lock) hasList() bool {
	return slices.ContainsFunc(l.values, func(v value) bool { return v.List >= 0 })
}

// checkWhen finds the function or method that says whether a call needs the lock. owner is the
// type around which the lock goes; nil for a function.
func (s *source) checkWhen(l *lock, owner *types.Named) {
	name, at := l.whenOption()
	if name == "" {
		return
	}
	fn, _ := s.Types.Scope().Lookup(name).(*types.Func)
	var method *types.Func
	if owner != nil {
		if m := methodsOf(owner)[name]; m != nil && (m.Exported() || m.Pkg() == s.Types) {
			method = m
		}
	}
	switch {
	case fn != nil && method != nil:
		s.fault(at, fmt.Sprintf("when: %s is a function, and a method of %s; rename one of them", name, owner.Obj().Name()))
		return
	case method != nil:
		l.when = method
	case fn != nil:
		l.when = fn
	default:
		s.fault(at, "when: "+s.noCondition(name, owner))
		return
	}
	if want := conditionOf(l.sig); !types.Identical(signatureOf(l.when), want) {
		s.fault(at, fmt.Sprintf("when: %s is a %s; it takes what %s takes, without the context: write a %s",
			name, s.finder().TypeName(signatureOf(l.when)), l.name.Name, s.finder().TypeName(want)))
	}
}

// whenOption is what the option when says, and where; empty without it.
func (l *lock) whenOption() (name string, at token.Pos) {
	for _, m := range l.marks {
		for _, o := range m.Options {
			if o.Name == "when" {
				return m.When, m.at(o.ValueAt)
			}
		}
	}
	return "", token.NoPos
}

// conditionOf is what the condition of a function of that signature has to be.
func conditionOf(sig *types.Signature) *types.Signature {
	var params []*types.Var
	for v := range sig.Params().Variables() {
		params = append(params, v)
	}
	result := types.NewVar(token.NoPos, nil, "", types.Typ[types.Bool])
	return types.NewSignatureType(nil, nil, nil, types.NewTuple(params[1:]...), types.NewTuple(result), sig.Variadic())
}

// signatureOf is a function's signature without its receiver.
func signatureOf(fn *types.Func) *types.Signature {
	sig := fn.Signature()
	if sig.Recv() == nil {
		return sig
	}
	return types.NewSignatureType(nil, nil, nil, sig.Params(), sig.Results(), sig.Variadic())
}

// noCondition says that there is no function or method of that name.
func (s *source) noCondition(name string, owner *types.Named) string {
	scope := s.Types.Scope()
	if other := scope.Lookup(name); other != nil {
		return name + " is no function; name one, or a method"
	}
	var known []string
	for _, n := range scope.Names() {
		if _, ok := scope.Lookup(n).(*types.Func); ok {
			known = append(known, n)
		}
	}
	what := "the package has no function " + name
	if owner != nil {
		known = append(known, slices.Sorted(maps.Keys(methodsOf(owner)))...)
		what += ", and " + owner.Obj().Name() + " no such method"
	}
	return what + keyfield.Suggestion(name, known, "there are")
}
