package template

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
)

type (
	// tagged has tags of every kind that can be used.
	tagged struct {
		Origin
		SKU   string `lock:"sku" json:"code"`
		State string `lock:"state"`
		Same  string `lock:"Same"`
		Plain string
		Order *struct {
			ID    int                      `lock:"id"`
			Lines *struct{ First skuCode } `lock:"lines-2"`
		} `lock:"order"`
		Tenant string // hides Origin's, and its tag
	}
	Origin struct {
		Tenant string `lock:"tenant"`
		Région string `lock:"région"`
		state  int    // promoted, but no placeholder can name it
	}
	tagLeft struct {
		Code string `lock:"code"`
	}
	tagRight struct {
		Code string `lock:"code"`
	}
	twoCodes struct {
		tagLeft
		tagRight
		Other string `lock:"Code"` // no field of this struct is called that
	}
	Loop struct {
		*Loop
		SKU string `lock:"sku"`
	}
)

func TestTagNamesItsFieldBesidesItsGoName(t *testing.T) {
	src := tagged{SKU: "A-1", State: "new", Same: "s", Plain: "p", Tenant: "outer", Origin: Origin{Tenant: "inner", Région: "eu", state: 1}}
	src.Order = &struct {
		ID    int                      `lock:"id"`
		Lines *struct{ First skuCode } `lock:"lines-2"`
	}{7, &struct{ First skuCode }{"x"}}
	for name, want := range map[string]string{
		"sku":                 "A-1",
		"SKU":                 "A-1",
		"state":               "new",
		"Same":                "s",
		"Plain":               "p",
		"order.id":            "7",
		"Order.ID":            "7",
		"order.ID":            "7",
		"Order.id":            "7",
		"order.lines-2.First": "x",
		"Tenant":              "outer",
		"Origin.tenant":       "inner",
		"région":              "eu",
		"Origin.région":       "eu",
	} {
		if got, err := field(name, &src); err != nil || got != want {
			t.Errorf("{%s} = %q, %v; want %q", name, got, err, want)
		}
	}
	if got, err := field("sku", Loop{SKU: "l"}); err != nil || got != "l" {
		t.Errorf("of a struct that embeds itself: %q, %v", got, err)
	}
	if got, err := field("Code", twoCodes{Other: "o"}); err != nil || got != "o" {
		t.Errorf("a tag like the name of fields that Go does not promote: %q, %v", got, err)
	}
}

func TestMisspeltTagIsRefusedWithASuggestion(t *testing.T) {
	for name, want := range map[string]string{
		"skv":       "template.tagged has no field skv; did you mean sku?",
		"Skv":       "did you mean sku?",
		"order.it":  "has no field it; did you mean id?",
		"oder.id":   "did you mean order?",
		"tenant":    "template.tagged has no field tenant; did you mean Tenant?",
		"order.sku": "; it has id, ID, lines-2, Lines",
		"order":     "so name a field of it, such as id",
	} {
		if err := resolves[tagged](name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("{%s}: %v; want %q", name, err, want)
		}
	}
	if err := resolves[twoCodes]("code"); err == nil || !strings.Contains(err.Error(), "template.twoCodes has more than one code; write which: tagLeft.code or tagRight.code") {
		t.Errorf("a tag that two embedded structs have: %v", err)
	}
	if err := resolves[Loop]("code"); err == nil || !strings.Contains(err.Error(), "has no field code") {
		t.Errorf("of a struct that embeds itself: %v", err)
	}
}

func TestTagThatNamesNoOneFieldIsRefusedWithTheCure(t *testing.T) {
	type hidden struct {
		SKU string
		id  string `lock:"id"`
	}
	_ = hidden{}.id
	type named struct {
		SKU  string
		Code string `lock:"SKU"`
	}
	type ownUnexported struct {
		sku  string
		Code string `lock:"sku"`
	}
	_ = ownUnexported{}.sku
	type both struct {
		SKU  string `lock:"sku"`
		Code string `lock:"sku"`
	}
	type promotedName struct {
		Origin
		Shop string `lock:"Tenant"`
	}
	type promotedTag struct {
		Origin
		Shop string `lock:"tenant"`
	}
	type promotedTags struct {
		Origin
		*warehouseTag
	}
	type promotedTakes struct {
		Name string
		*nameTag
	}
	type embeddedUnexported struct {
		base `lock:"base"`
	}
	for _, tc := range []struct {
		fault error
		says  string
	}{
		{resolves[hidden]("SKU"), `id of template.hidden has the tag lock:"id" but is not exported, and only exported fields can be read; export it or remove the tag`},
		{resolves[embeddedUnexported]("Tenant"), `base of template.embeddedUnexported has the tag lock:"base" but is not exported`},
		{resolves[named]("Code"), `Code of template.named has the tag lock:"SKU", which is the name of the field SKU; use a tag that names this field alone`},
		{resolves[ownUnexported]("Code"), `which is the name of the field sku;`},
		{resolves[both]("sku"), `Code of template.both has the tag lock:"sku", and so has SKU; use a tag that names one field alone`},
		{resolves[promotedName]("Shop"), `which is the name of the field Origin.Tenant;`},
		{resolves[promotedTag]("Shop"), `Shop of template.promotedTag has the tag lock:"tenant", and so has Origin.Tenant;`},
		{resolves[promotedTags]("tenant"), `warehouseTag.Warehouse of template.promotedTags has the tag lock:"tenant", and so has Origin.Tenant;`},
		{resolves[promotedTakes]("Name"), `nameTag.Label of template.promotedTakes has the tag lock:"Name", which is the name of the field Name;`},
		{resolves[struct{ Deep both }]("Deep.SKU"), `Code of template.both has the tag lock:"sku", and so has SKU`},
	} {
		if tc.fault == nil || !strings.Contains(tc.fault.Error(), tc.says) {
			t.Errorf("got %v; want %q", tc.fault, tc.says)
		}
	}
}

type (
	warehouseTag struct {
		Warehouse string `lock:"tenant"`
	}
	nameTag struct {
		Label string `lock:"Name"`
	}
)

func TestTagThatIsNoPlainNameIsRefusedWithOne(t *testing.T) {
	for _, tag := range []string{"", " ", "-", ".", "a.b", "a b", "{a}", "a}", "sku,omitempty", "1st", "_a", "a:b", "a\n", "a\u00a0", "\xff"} {
		f := reflect.StructField{Name: "SKU", Type: reflect.TypeFor[string](), Tag: reflect.StructTag("lock:" + strconv.Quote(tag))}
		_, err := FieldPath(reflect.StructOf([]reflect.StructField{f}), "SKU")
		if want := `which is no plain name; use letters, digits, '_' and '-', beginning with a letter, such as lock:"sku"`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", tag, err)
		}
	}
}

func TestFieldPathIsTheWayOfAPlaceholder(t *testing.T) {
	fields, err := FieldPath(reflect.TypeFor[**tagged](), "order.lines-2.First")
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); err != nil || got != "Order Lines First" {
		t.Errorf("got %q, %v", got, err)
	}
	if fields, err := FieldPath(reflect.TypeFor[string](), "."); err != nil || len(fields) != 0 {
		t.Errorf("of a scalar: %v, %v", fields, err)
	}
	if fields, err := FieldPath(reflect.TypeFor[tagged](), "order"); err == nil || fields != nil {
		t.Errorf("of what cannot be a key: %v, %v", fields, err)
	}
}

func TestTaggedFieldAllocatesNothing(t *testing.T) {
	accessor, err := Fields[*tagged]("sku")
	if err != nil {
		t.Fatal(err)
	}
	dst, src := make([]byte, 0, 64), &tagged{SKU: "A-1"}
	if n := testing.AllocsPerRun(100, func() { _, _ = accessor(dst, src) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
