package template

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

type (
	cart struct {
		Shop  string
		Items []line `lock:"items"`
		SKUs  []string
		Deep  *struct{ Lines *[]*line }
		Pair  [2]int
		Raw   []byte
		By    map[string]line
		Carts []cart
	}
	line struct {
		SKU   string `lock:"sku"`
		Shelf *struct{ ID int8 }
	}
)

// all renders the keys of a template.
func all[T any](text string, src T) (keys []string, fault *Fault) {
	t, fault := compile(text, Fields[T])
	if fault != nil {
		return nil, fault
	}
	fault = t.RenderAll(src, func(key string) bool {
		keys = append(keys, key)
		return true
	})
	return keys, fault
}

func TestListMakesAKeyOfEachElement(t *testing.T) {
	items := []line{{SKU: "B:1", Shelf: &struct{ ID int8 }{3}}, {SKU: "a", Shelf: &struct{ ID int8 }{-1}}, {SKU: "a", Shelf: &struct{ ID int8 }{0}}}
	src := cart{Shop: "s", Items: items, SKUs: []string{"x", "y"}, Pair: [2]int{7, 8}}
	src.Deep = &struct{ Lines *[]*line }{&[]*line{&items[1], &items[0]}}
	for text, want := range map[string][]string{
		"k:{Items[].SKU}":                  {"k:B%3A1", "k:a", "k:a"},
		"k:{items[].sku}/end":              {"k:B%3A1/end", "k:a/end", "k:a/end"},
		"{Shop}:{Items[].SKU}":             {"s:B%3A1", "s:a", "s:a"},
		"{Items[].Shelf.ID}:{Items[].SKU}": {"3:B%3A1", "-1:a", "0:a"},
		"k:{Items[].SKU:lower}":            {"k:b%3A1", "k:a", "k:a"},
		"{SKUs[]}":                         {"x", "y"},
		"k:{Pair[]}":                       {"k:7", "k:8"},
		"k:{Deep.Lines[].SKU}":             {"k:a", "k:B%3A1"},
	} {
		if got, fault := all(text, &src); fault != nil || !slices.Equal(got, want) {
			t.Errorf("%q = %q, %v; want %q", text, got, fault, want)
		}
	}
	if got, fault := all("k:{[].SKU}", items); fault != nil || !slices.Equal(got, []string{"k:B%3A1", "k:a", "k:a"}) {
		t.Errorf("of a source that is a list: %q, %v", got, fault)
	}
	if got, fault := all("k:{[]:int}", &[]string{"01", "2"}); fault != nil || !slices.Equal(got, []string{"k:1", "k:2"}) {
		t.Errorf("of a source that is a list of scalars: %q, %v", got, fault)
	}
}

func TestElementWithoutAValueIsNamedByItsIndexAndNotByItsValue(t *testing.T) {
	for _, tc := range []struct {
		text        string
		src         cart
		placeholder string
		cause       error
		detail      string
	}{
		{"{Items[].SKU}", cart{Items: []line{{SKU: "secret"}, {}}}, "Items[1].SKU", ErrMissing, "value is missing or empty"},
		{"{Items[].Shelf.ID}:{Items[].SKU}", cart{Items: []line{{SKU: "secret"}}}, "Items[0].Shelf.ID", ErrMissing, "value is missing or empty"},
		{"{SKUs[]:int}", cart{SKUs: []string{"1", "2", "secret"}}, "SKUs[2]", ErrInvalid, "value cannot be read"},
		{"{SKUs[]}", cart{SKUs: []string{"1", ""}}, "SKUs[1]", ErrMissing, "value is missing or empty"},
		{"{Deep.Lines[].SKU}", cart{Deep: &struct{ Lines *[]*line }{&[]*line{{SKU: "a"}, nil}}}, "Deep.Lines[1].SKU", ErrMissing, "value is missing or empty"},
		{"{Deep.Lines[].SKU}", cart{}, "Deep.Lines[].SKU", ErrMissing, "value is missing or empty"},
		{"{Items[].SKU}", cart{}, "Items[].SKU", ErrMissing, "list is empty; set Policy.AllowEmpty if such a call needs no lock"},
		{"{Shop}:{Items[].SKU}", cart{Items: []line{{SKU: "a"}}}, "Shop", ErrMissing, "value is missing or empty"},
		{"{SKUs[]}", cart{SKUs: make([]string, maxElements+1)}, "SKUs[]", ErrTooMany, "list has more than 1024 elements; use a shorter one, of at most 64 different values"},
	} {
		keys, fault := all(tc.text, tc.src)
		if fault == nil || fault.Placeholder != tc.placeholder || !errors.Is(fault, tc.cause) || fault.Detail != tc.detail || len(keys) > 0 {
			t.Errorf("%s: %q, %+v", tc.text, keys, fault)
		}
		if fault != nil && strings.Contains(fault.Cause.Error(), "secret") {
			t.Errorf("%s: %v", tc.text, fault.Cause)
		}
	}
}

func TestListIsCountedBeforeItsElementsAreRead(t *testing.T) {
	read := 0
	value := func(dst []byte, _ int) ([]byte, error) { read++; return append(dst, 'x'), nil }
	if _, err := AppendList(nil, 1e9, value); !errors.Is(err, ErrTooMany) || read > 0 {
		t.Errorf("%v, %d were read", err, read)
	}
	if _, err := AppendList(nil, -1, value); !errors.Is(err, ErrInvalid) || errors.Is(err, ErrEmpty) || read > 0 {
		t.Errorf("a negative length: %v, %d were read", err, read)
	}
	if list, err := AppendList(nil, maxElements, value); err != nil || read != maxElements || len(list) != maxElements*(lengthSize+1) {
		t.Errorf("%v, %d were read", err, read)
	}
}

func TestValueOfAnElementMayBeItsOwn(t *testing.T) {
	own := []byte("own value, which is longer than what comes before it")
	tpl, fault := compile("k:{a[]}", func(string) (Accessor[int], error) {
		return func(dst []byte, n int) ([]byte, error) {
			return AppendList(dst, n, func(dst []byte, i int) ([]byte, error) {
				if i%2 == 0 {
					return own[:3], nil
				}
				return append(dst, 'b'), nil
			})
		}, nil
	})
	if fault != nil {
		t.Fatal(fault)
	}
	var keys []string
	fault = tpl.RenderAll(3, func(key string) bool { keys = append(keys, key); return true })
	if fault != nil || !slices.Equal(keys, []string{"k:own", "k:b", "k:own"}) || !strings.HasPrefix(string(own), "own value") {
		t.Errorf("%q, %v; %s", keys, fault, own)
	}
}

func TestImpossibleListIsRefusedWithItsPlaceAndTheCure(t *testing.T) {
	for text, want := range map[string]string{
		"k:{Carts[].Items[].SKU}":     "column 3: {Carts[].Items[].SKU} goes through two lists",
		"k:{Items[].SKU}:{SKUs[]}":    "column 17: {SKUs[]} is of another list than {Items[].SKU}, and a template goes through one; give each an element of Keys",
		"{items[].SKU}:{Items[].SKU}": "is of another list than {items[].SKU}",
		"{Items[]SKU}":                "what follows [] is a dot and a name, or nothing; write {Items[].name} or {Items[]}",
		"{Items[].}":                  "what follows [] is a dot and a name",
		"{Shop.[].SKU}":               "{Shop.[].SKU} has no name before []",
		"{[].SKU}":                    "the source is of type template.cart; a list is a slice or an array, of anything but bytes",
		"{Items[]}":                   "Items[] is of type template.line; a part of a key is a string, an integer or a bool, so name a field of it, such as sku",
		"{Items[].skv}":               "template.line has no field skv; did you mean sku?",
		"{Items[0].SKU}":              "has no field Items[0]; did you mean items?",
		"{Items.SKU}":                 "Items is of type []template.line, which has no fields; {Items[].sku} in an element of Keys is a key for each element",
		"{SKUs}":                      "; {SKUs[]} in an element of Keys is a key for each element",
		"{Shop[]}":                    "Shop is of type string, which is no list; its value is {Shop}",
		"{Shop[].SKU}":                "Shop is of type string, which is no list",
		"{Raw[]}":                     "Raw is of type []uint8; a list is a slice or an array, of anything but bytes",
		"{By[].SKU}":                  "By is of type map[string]template.line; a list is a slice or an array",
	} {
		if _, fault := compile(text, Fields[cart]); fault == nil || !strings.Contains(fault.Detail, want) {
			t.Errorf("%s: %v; want %q", text, fault, want)
		}
	}
	if _, fault := Compile("Key", "k:{Items[].SKU}", longest, false, Fields[cart]); fault == nil ||
		fault.Detail != "Key, column 3: {Items[].SKU} gives a key for each element of a list, and there is room for one key here; in a policy, put the template into Keys" {
		t.Errorf("where there is no place for several keys: %v", fault)
	}
	if _, fault := compile("{[]}", Fields[[]cart]); fault == nil || !strings.Contains(fault.Detail, "so name a field of it, such as Shop") {
		t.Errorf("a source that is a list of structs: %v", fault)
	}
}

func TestResolverThatKnowsNoListsMakesNoKeys(t *testing.T) {
	for name, value := range map[string]string{"text": "abc", "nothing": "", "a length beyond the end": "\x00\x00\x00\x09abc", "an empty element": "\x00\x00\x00\x00"} {
		tpl, fault := compile("k:{labels[]}", func(string) (Accessor[int], error) {
			return func(dst []byte, _ int) ([]byte, error) { return append(dst, value...), nil }, nil
		})
		if fault != nil {
			t.Fatal(fault)
		}
		fault = tpl.RenderAll(1, func(key string) bool { t.Errorf("%s: %q", name, key); return true })
		if fault == nil || fault.Cause == ErrEmpty {
			t.Errorf("%s: %v", name, fault)
		}
	}
}

func TestListThatChangesInBetweenMakesNoKeys(t *testing.T) {
	n := 0
	tpl, fault := compile("{a[].x}:{a[].y}", func(string) (Accessor[int], error) {
		return func(dst []byte, _ int) ([]byte, error) {
			n++
			return AppendList(dst, n, func(dst []byte, _ int) ([]byte, error) { return append(dst, 'v'), nil })
		}, nil
	})
	if fault != nil {
		t.Fatal(fault)
	}
	if fault := tpl.RenderAll(1, func(string) bool { return true }); !errors.Is(fault, ErrInvalid) {
		t.Errorf("got %v", fault)
	}
}
