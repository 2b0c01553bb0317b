package generate

import (
	"fmt"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"github.com/lockaround/lockaround/decorator/internal/keyfield"
)

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
