package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// listed are the keys "k:…" of a list in a JSON body, which the engine sorts, and the error.
func listed(t testing.TB, e *core.Engine, doc, list, rest string) ([]string, error) {
	t.Helper()
	path := func(dotted string) []string {
		if dotted == "" {
			return nil
		}
		return strings.Split(dotted, ".")
	}
	g, err := core.NewGuard(e, core.Policy{Name: "list", Keys: []string{"k:{x[]}"}}, func(string) (core.Accessor[*Content], error) {
		return func(dst []byte, c *Content) ([]byte, error) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(doc))
			r.Header.Set("Content-Type", "application/json")
			return c.AppendList(dst, r, path(list), path(rest))
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.Acquire(t.Context(), &Content{Whole: []byte(doc)})
	if err != nil {
		return nil, err
	}
	keys := l.Keys()
	return keys, l.Release(t.Context())
}

func engine(t testing.TB) *core.Engine {
	e, err := core.New(memlock.New(), core.WithNamespace("body"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestJSONListIsTakenOnlyWhereAllDecodersAgree(t *testing.T) {
	many := func(n int, element string) string {
		return `{"items":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}`
	}
	const deepest = maxJSONDepth - 3 // the root, the array and the element come before
	e := engine(t)
	for _, tc := range []struct {
		name, doc, list, rest string
		want                  []string
		err                   error
		says                  string
	}{
		{name: "one", doc: `{"items":[{"sku":"a"}]}`, want: []string{"k:a"}},
		{name: "several", doc: ` { "x":[], "items" : [ {"n":[{}],"sku":"b"} , {"sku":1},{"sku":true,"z":{"sku":"no"}} ] } `, want: []string{"k:1", "k:b", "k:true"}},
		{name: "number and text of one spelling", doc: `{"items":[{"sku":1},{"sku":"1"}]}`, want: []string{"k:1"}},
		{name: "escapes", doc: `{"\u0069tems":[{"s\u006bu":"\u0061:\ud83d\ude00"},{"sku":"a:😀"}]}`, want: []string{"k:a%3A%F0%9F%98%80"}},
		{name: "scalars", doc: `{"items":["b", "a",3]}`, rest: "-", want: []string{"k:3", "k:a", "k:b"}},
		{name: "further in", doc: `{"order":{"items":[{"p":{"sku":"a"}}]}}`, list: "order.items", rest: "p.sku", want: []string{"k:a"}},
		{name: "as deep as allowed", doc: `{"items":[{"x":` + strings.Repeat("[", deepest) + strings.Repeat("]", deepest) + `,"sku":1}]}`, want: []string{"k:1"}},
		{name: "as many as allowed", doc: many(1024, `{"sku":"a"}`), want: []string{"k:a"}},

		{name: "empty", doc: `{"items":[ ]}`, err: core.ErrMissing, says: "{x[]}: list is empty"},
		{name: "absent", doc: `{}`, err: core.ErrMissing, says: "{x[]}: value is missing or empty"},
		{name: "null", doc: `{"items":null}`, err: core.ErrMissing, says: "{x[]}: value is missing or empty"},
		{name: "object", doc: `{"items":{"0":{"sku":"a"}}}`, err: core.ErrInvalid, says: "{x[]}: value cannot be read"},
		{name: "text", doc: `{"items":"[]"}`, err: core.ErrInvalid},
		{name: "null element", doc: `{"items":[{"sku":"a"},null]}`, err: core.ErrMissing, says: "{x[1]}: value is missing or empty"},
		{name: "null scalar", doc: `{"items":["a",null]}`, rest: "-", err: core.ErrMissing, says: "{x[1]}"},
		{name: "element without the field", doc: `{"items":[{}]}`, err: core.ErrMissing, says: "{x[0]}"},
		{name: "element with an empty field", doc: `{"items":[{"sku":""}]}`, err: core.ErrMissing, says: "{x[0]}"},
		{name: "element of another kind", doc: `{"items":[{"sku":"a"},"b"]}`, err: core.ErrInvalid, says: "{x[1]}"},
		{name: "nested array", doc: `{"items":[[{"sku":"a"}]]}`, err: core.ErrInvalid, says: "{x[0]}"},
		{name: "nested array of scalars", doc: `{"items":[["a"]]}`, rest: "-", err: core.ErrInvalid, says: "{x[0]}"},
		{name: "fraction", doc: `{"items":[{"sku":1.0}]}`, err: core.ErrInvalid},
		{name: "list that comes twice", doc: `{"items":[{"sku":"a"}],"items":[{"sku":"b"}]}`, err: core.ErrRepeated, says: "{x[]}: value is repeated"},
		{name: "list in another case", doc: `{"items":[{"sku":"a"}],"Items":[{"sku":"b"}]}`, err: core.ErrInvalid},
		{name: "list in another case alone", doc: `{"ITEMS":[{"sku":"b"}]}`, err: core.ErrInvalid},
		{name: "field that comes twice", doc: `{"items":[{"sku":"a","sku":"b"}]}`, err: core.ErrRepeated, says: "{x[0]}"},
		{name: "field in another case", doc: `{"items":[{"sku":"a"},{"sku":"a","ſku":"b"}]}`, err: core.ErrInvalid, says: "{x[1]}"},
		{name: "half a surrogate pair", doc: `{"items":[{"sku":"\ud83d"}]}`, err: core.ErrInvalid, says: "{x[0]}"},
		{name: "too deep", doc: `{"items":[{"x":` + strings.Repeat("[", deepest+1) + strings.Repeat("]", deepest+1) + `,"sku":1}]}`, err: core.ErrInvalid},
		{name: "cut off", doc: `{"items":[{"sku":"a"}`, err: core.ErrInvalid},
		{name: "1025 elements", doc: many(1025, `{"sku":"a"}`), err: core.ErrKey, says: "{x[]}: list has more than 1024 elements"},
		{name: "a million elements", doc: many(1_000_000, `0`), err: core.ErrKey, says: "{x[]}: list has more than 1024 elements"},
		{name: "65 keys", doc: `{"items":[` + strings.Join(numbers(65), ",") + `]}`, rest: "-", err: core.ErrKey, says: "more than 64 different keys"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, rest := "items", "sku"
			if tc.list != "" {
				list = tc.list
			}
			if tc.rest != "" {
				rest = strings.TrimPrefix(tc.rest, "-")
			}
			got, err := listed(t, e, tc.doc, list, rest)
			if !slices.Equal(got, tc.want) || !errors.Is(err, tc.err) || tc.want == nil && !errors.Is(err, core.ErrKey) || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%q, %v; want %q, %v: %s", got, err, tc.want, tc.err, tc.says)
			}
		})
	}
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestFormHasNoList(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("items=a&items=b"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	c := Content{Whole: []byte("items=a&items=b")}
	if _, err := c.AppendList(nil, r, []string{"items"}, nil); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "a form has no lists; send JSON") {
		t.Errorf("got %v", err)
	}
}

// FuzzJSONList holds the scanner against encoding/json: what it accepts is what a handler sees
// that decodes the body into a struct, element by element.
func FuzzJSONList(f *testing.F) {
	for _, doc := range []string{
		`{"items":[{"sku":"a"},{"sku":2}]}`, `{"items":[{"sku":"a","SKU":"b"}]}`, `{"items":[null]}`, `{"items":[[{"sku":1}]]}`,
		`{"items":[{"x":"]}"},{"sku":"\ud83d\ude00"}]}`, `{"items":[],"items":[{"sku":1}]}`, `{"items":{}}`, `{"Items":[{"sku":1}]}`,
		`{"items": [ {"sku" : true } , {"sku":-1} ] }`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if checkJSON(doc) != nil {
			return
		}
		list, err := appendJSONList(nil, doc, []string{"items"}, []string{"sku"})
		if err != nil {
			return
		}
		var into struct {
			Items []struct {
				SKU any `json:"sku"`
			} `json:"items"`
		}
		d := json.NewDecoder(bytes.NewReader(doc))
		d.UseNumber()
		if err := d.Decode(&into); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		want, err := core.AppendList(nil, len(into.Items), func(dst []byte, i int) ([]byte, error) { return fmt.Append(dst, into.Items[i].SKU), nil })
		if err != nil || !bytes.Equal(list, want) {
			t.Fatalf("%q; a struct has %q, %v", list, want, err)
		}
	})
}
