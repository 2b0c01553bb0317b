package generate

import (
	"go/token"
	"go/types"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/fields"
)

// What a function's argument offers to core.Fields, another package's directive can name.
func TestADirectiveReadsTheFieldsThatCoreReads(t *testing.T) {
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports},
		"github.com/lockaround/lockaround/decorator/lockgen/testdata/fields")
	if err != nil || len(loaded) != 1 {
		t.Fatal(loaded, err)
	}
	s := &source{Package: &packages.Package{Types: types.NewPackage("example.com/reader", "reader")}}
	anyType := types.Universe.Lookup("any").Type()
	accepted := 0
	for typ, byCore := range map[string]func(string) error{
		"Plain":     accepts(core.Fields[fields.Plain]()),
		"Promoting": accepts(core.Fields[fields.Promoting]()),
		"Ambiguous": accepts(core.Fields[fields.Ambiguous]()),
		"Recursive": accepts(core.Fields[*fields.Recursive]()),
		"Hiding":    accepts(core.Fields[fields.Hiding]()),
		"Embedding": accepts(core.Fields[fields.Embedding]()),
		"Tagged":    accepts(core.Fields[fields.Tagged]()),
		"Shadowing": accepts(core.Fields[*fields.Shadowing]()),
		"Colliding": accepts(core.Fields[fields.Colliding]()),
		"Twice":     accepts(core.Fields[fields.Twice]()),
		"Misnamed":  accepts(core.Fields[fields.Misnamed]()),
		"Unseen":    accepts(core.Fields[fields.Unseen]()),
		"Listing":   accepts(core.Fields[*fields.Listing]()),
	} {
		argument := loaded[0].Types.Scope().Lookup(typ).Type()
		sig := types.NewSignatureType(nil, nil, nil, types.NewTuple(
			types.NewParam(token.NoPos, nil, "ctx", anyType),
			types.NewParam(token.NoPos, nil, "in", argument)), nil, false)
		for _, name := range []string{
			"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "l", "_", "M", "n", "lower", "Plain", "One", "Two", "Deep", "Number", "Named", "Self", "Recursive",
			"F.A", "F.G", "F.B", "H.A", "H.H.H.B", "H.F.G", "Plain.A", "Plain.C", "lower.M", "One.A", "Two.A", "Two.C", "One.Deep.D", "Two.D", "Deep.D",
			"Self.A", "Recursive.A", "Self.Recursive.Self.A", "Promoting.A", "Promoting.M", "Promoting.Plain.A", "A.B", "X", "a", "in.a", "in.in.A", "deep.D", "deep.E", "Tagged.a", "Tagged.deep.E", "in", "a.b", "A.", ".A", "..", "",
			"A[]", "A[].X", "B[]", "B[].A", "B[].B", "B[].F.G", "B[].H.H.C", "B[].D", "B.A", "C[]", "D[].A", "D[].E[]", "E[]", "F[]", "F[].A", "G[]", "H[]", "I[]", "J[]",
			"K[].E", "K[].L.a", "K[].A", "L[]", "L[].a", "M[].a", "M[].A", "M[]", "A[0]", "A[", "A]", "X[]", "A[].",
		} {
			_, _, err := s.resolve("Call", sig, "in."+name)
			if want := byCore(name); (err == nil) != (want == nil) {
				t.Errorf("%s, {%s}: %v; core says %v", typ, name, err, want)
			}
			if err == nil {
				accepted++
			}
		}
	}
	if accepted < 40 {
		t.Errorf("%d were accepted", accepted)
	}
}

// accepts is what a resolver says of a name.
func accepts[T any](r core.Resolver[T]) func(string) error {
	return func(name string) error {
		_, err := r(name)
		return err
	}
}
