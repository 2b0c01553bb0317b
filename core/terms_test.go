package core

import (
	"reflect"
	"testing"

	"github.com/lockaround/lockaround/core/memlock"
)

// A plan is found again by all that its policy says, but for the keys.
func TestPlanIsThatOfItsPolicy(t *testing.T) {
	e, err := New(memlock.New(), WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	usual := e.planOf(Policy{})
	if e.planOf(Policy{Key: "a"}) != usual || e.planOf(Policy{Keys: []string{"a", "b"}}) != usual {
		t.Error("a policy with another key has a plan of its own")
	}
	for i := range reflect.TypeFor[Policy]().NumField() {
		var p Policy
		f := reflect.ValueOf(&p).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint8:
			f.SetUint(1)
		case reflect.Slice:
			continue
		default:
			t.Fatalf("a field of kind %v", f.Kind())
		}
		name := reflect.TypeFor[Policy]().Field(i).Name
		if pl := e.planOf(p); name != "Key" && (pl == usual || !reflect.DeepEqual(pl.Policy, p)) {
			t.Errorf("%s: a policy that says it has the plan of one that does not, or another: %+v", name, pl.Policy)
		}
	}
}
