package template

import (
	"errors"
	"strings"
	"testing"
	"time"
)

type (
	skuCode  string
	quantity uint16
	level    int8

	warehouse struct {
		ID   int
		Name string
	}
	Audit struct{ Actor string }
	base  struct {
		Tenant string
		secret string
	}
	left  struct{ Code string }
	right struct{ Code string }

	// order has a field of every shape that Fields meets.
	order struct {
		base
		*Audit
		SKU       skuCode
		ProductID string
		Count     quantity
		Level     level
		Express   bool
		Warehouse warehouse
		Deep      *struct{ Inner **warehouse }
		Note      *string
		Price     float64
		Tags      []string
		Attrs     map[string]string
		At        time.Time
		Any       any
		Hook      func()
		Raw       [16]byte
		Pointer   uintptr
		internal  string
	}
	pair struct {
		left
		right
	}
	selfish *selfish
)

// field renders {name} of src.
func field[T any](name string, src T) (string, error) {
	accessor, err := Fields[T](name)
	if err != nil {
		return "", err
	}
	value, err := accessor(nil, src)
	return string(value), err
}

func TestFieldsReadsEveryKindOfLeaf(t *testing.T) {
	inner := &warehouse{ID: -7, Name: "North"}
	note := "fragile"
	src := order{
		base: base{Tenant: "eu", secret: "s"}, Audit: &Audit{Actor: "ann"},
		SKU: "A-1", ProductID: "p9", Count: 65535, Level: -128, Express: true,
		Warehouse: warehouse{ID: 3}, Deep: &struct{ Inner **warehouse }{&inner}, Note: &note, internal: "i",
	}
	for name, want := range map[string]string{
		"SKU":             "A-1",
		"ProductID":       "p9",
		"Count":           "65535",
		"Level":           "-128",
		"Express":         "true",
		"Warehouse.ID":    "3",
		"Deep.Inner.ID":   "-7",
		"Deep.Inner.Name": "North",
		"Note":            "fragile",
		"Tenant":          "eu",
		"Actor":           "ann",
		"Audit.Actor":     "ann",
	} {
		if got, err := field(name, src); err != nil || got != want {
			t.Errorf("{%s} of a struct = %q, %v; want %q", name, got, err, want)
		}
		if got, err := field(name, &src); err != nil || got != want {
			t.Errorf("{%s} of a pointer = %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestDotIsAScalarItself(t *testing.T) {
	text, number := "A:1", 5
	check := func(got string, err error) func(want string) {
		return func(want string) {
			t.Helper()
			if err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		}
	}
	check(field(".", text))("A:1")
	check(field(".", &text))("A:1")
	check(field(".", skuCode("x")))("x")
	check(field(".", number))("5")
	check(field(".", uint64(1<<63)))("9223372036854775808")
	check(field(".", int64(-1<<63)))("-9223372036854775808")
	check(field(".", false))("false")
	check(field(".", time.Second))("1000000000")
}

func TestNilPointerAndEmptyStringAreMissing(t *testing.T) {
	empty := ""
	var none *warehouse
	for name, src := range map[string]*order{
		"SKU":             nil,
		"Note":            {},
		"Actor":           {},
		"Audit.Actor":     {},
		"Deep.Inner.ID":   {Deep: &struct{ Inner **warehouse }{&none}},
		"Deep.Inner.Name": {Deep: &struct{ Inner **warehouse }{}},
	} {
		if _, err := field(name, src); !errors.Is(err, ErrMissing) {
			t.Errorf("{%s}: got %v", name, err)
		}
	}
	for _, src := range []*order{{Note: &empty}, {}} {
		tpl, fault := compile("{Note}", Fields[*order])
		if fault != nil {
			t.Fatal(fault)
		}
		if key, fault := tpl.Render(src); key != "" || !errors.Is(fault, ErrMissing) || fault.Placeholder != "Note" {
			t.Errorf("got %q, %v", key, fault)
		}
	}
}

func TestZeroAndFalseAreValues(t *testing.T) {
	for name, want := range map[string]string{"Count": "0", "Express": "false", "Warehouse.ID": "0"} {
		if got, err := field(name, order{}); err != nil || got != want {
			t.Errorf("{%s} = %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestFieldThatCannotBeAKeyIsRefusedWithTheCure(t *testing.T) {
	refuses := func(name string, resolve func(string) error, want ...string) {
		t.Helper()
		err := resolve(name)
		if err == nil {
			t.Errorf("{%s} was accepted", name)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("{%s}: %q does not say %q", name, err, w)
			}
		}
	}
	ofOrder := resolves[order]
	for _, name := range []string{"Price", "Tags", "Attrs", "At", "Any", "Hook", "Raw", "Pointer"} {
		refuses(name, ofOrder, name, leafKinds)
	}
	refuses("Warehouse", ofOrder, "template.warehouse", leafKinds, "such as ID")
	refuses(".", ofOrder, "template.order", leafKinds, "such as Tenant")
	refuses("sku", ofOrder, "no field sku", "did you mean SKU?")
	refuses("product_id", ofOrder, "did you mean ProductID?")
	refuses("Warehose.ID", ofOrder, "did you mean Warehouse?")
	refuses("Warehouse.Id", ofOrder, "template.warehouse has no field Id", "did you mean ID?")
	refuses("Warehouse.Colour", ofOrder, "it has ID, Name")
	refuses("SKU.ID", ofOrder, "SKU is of type template.skuCode", "no fields")
	refuses("internal", ofOrder, "not exported")
	refuses("secret", ofOrder, "not exported")
	refuses("base.Tenant", ofOrder, "not exported")
	refuses("Warehouse..ID", ofOrder, "between dots is empty")
	refuses("Warehouse.", ofOrder, "between dots is empty")
	refuses(".SKU", ofOrder, "between dots is empty")
	refuses("Code", resolves[pair], "more than one Code", "left.Code or right.Code")
	refuses("ID", resolves[string], "string", "{.}")
	refuses("ID", resolves[any], "no fields", "{.}")
	refuses(".", resolves[any], leafKinds)
	refuses(".", resolves[float64], leafKinds)
	refuses(".", resolves[[]byte], leafKinds)
	refuses(".", resolves[time.Time], leafKinds)
	refuses(".", resolves[struct{}], leafKinds)
	refuses("ID", resolves[struct{}], "no exported fields")
	refuses(".", resolves[selfish], leafKinds)
}

func resolves[T any](name string) error {
	_, err := Fields[T](name)
	return err
}

func TestFieldsAllocatesNothing(t *testing.T) {
	accessor, err := Fields[order]("Warehouse.ID")
	if err != nil {
		t.Fatal(err)
	}
	dst, src := make([]byte, 0, 64), order{}
	if n := testing.AllocsPerRun(100, func() { _, _ = accessor(dst, src) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
