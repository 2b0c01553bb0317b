package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
)

func TestJSONValueIsTakenOnlyWhereAllDecodersAgree(t *testing.T) {
	const deepest = maxJSONDepth - 1 // the root is the first level
	for _, tc := range []struct {
		name, doc, path string
		want            string
		err             error
	}{
		{name: "string", doc: `{"sku":"a-1"}`, path: "sku", want: "a-1"},
		{name: "white space", doc: " {\n\t\"sku\" :\r\"a\" , \"n\" : 1 } ", path: "sku", want: "a"},
		{name: "last member", doc: `{"x":[1,{"sku":"no"},"}"],"y":{"sku":"no"},"sku":"yes"}`, path: "sku", want: "yes"},
		{name: "nested", doc: `{"order":{"id":"7","sku":"b"},"sku":"a"}`, path: "order.sku", want: "b"},
		{name: "integer", doc: `{"id":42}`, path: "id", want: "42"},
		{name: "negative integer", doc: `{"id":-42}`, path: "id", want: "-42"},
		{name: "integer beyond 2^53", doc: `{"id":9007199254740993}`, path: "id", want: "9007199254740993"},
		{name: "integer beyond int64", doc: `{"id":18446744073709551615}`, path: "id", want: "18446744073709551615"},
		{name: "least integer", doc: `{"id":-9223372036854775808}`, path: "id", want: "-9223372036854775808"},
		{name: "integer beyond 64 bits", doc: `{"id":18446744073709551617}`, path: "id", err: core.ErrInvalid},
		{name: "integer far beyond 64 bits", doc: `{"id":-123456789012345678901234567890}`, path: "id", err: core.ErrInvalid},
		{name: "true", doc: `{"id":true}`, path: "id", want: "true"},
		{name: "false", doc: `{"id":false }`, path: "id", want: "false"},
		{name: "escaped value", doc: `{"id":"\u0061\n\"\\\/\t\r\b\f"}`, path: "id", want: "a\n\"\\/\t\r\b\f"},
		{name: "surrogate pair", doc: `{"id":"\ud83d\ude00!"}`, path: "id", want: "😀!"},
		{name: "escaped name", doc: `{"\u0069d":"a"}`, path: "id", want: "a"},
		{name: "other names may repeat", doc: `{"x":1,"x":2,"X":3,"id":"a"}`, path: "id", want: "a"},
		{name: "as deep as allowed", doc: `{"x":` + strings.Repeat("[", deepest) + strings.Repeat("]", deepest) + `,"id":1}`, path: "id", want: "1"},

		{name: "absent", doc: `{"x":1}`, path: "id", err: core.ErrMissing},
		{name: "absent outer", doc: `{"x":1}`, path: "order.id", err: core.ErrMissing},
		{name: "empty object", doc: `{ }`, path: "id", err: core.ErrMissing},
		{name: "empty string", doc: `{"id":""}`, path: "id", err: core.ErrMissing},
		{name: "null", doc: `{"id":null}`, path: "id", err: core.ErrMissing},
		{name: "object", doc: `{"id":{}}`, path: "id", err: core.ErrInvalid},
		{name: "array", doc: `{"id":["a"]}`, path: "id", err: core.ErrInvalid},
		{name: "fraction", doc: `{"id":1.0}`, path: "id", err: core.ErrInvalid},
		{name: "exponent", doc: `{"id":1e0}`, path: "id", err: core.ErrInvalid},
		{name: "capital exponent", doc: `{"id":1E0}`, path: "id", err: core.ErrInvalid},
		{name: "negative zero", doc: `{"id":-0}`, path: "id", err: core.ErrInvalid},
		{name: "leading zero", doc: `{"id":01}`, path: "id", err: core.ErrInvalid},
		{name: "outer is a string", doc: `{"order":"id"}`, path: "order.id", err: core.ErrInvalid},
		{name: "outer is null", doc: `{"order":null}`, path: "order.id", err: core.ErrInvalid},
		{name: "outer is an array", doc: `{"order":[{"id":1}]}`, path: "order.id", err: core.ErrInvalid},
		{name: "root is an array", doc: `[{"id":1}]`, path: "id", err: core.ErrInvalid},
		{name: "root is null", doc: `null`, path: "id", err: core.ErrInvalid},
		{name: "repeated", doc: `{"id":"a","id":"b"}`, path: "id", err: core.ErrRepeated},
		{name: "repeated with the same value", doc: `{"id":"a","id":"a"}`, path: "id", err: core.ErrRepeated},
		{name: "repeated by an escape", doc: `{"id":"a","i\u0064":"b"}`, path: "id", err: core.ErrRepeated},
		{name: "outer repeated", doc: `{"order":{"id":"a"},"order":{}}`, path: "order.id", err: core.ErrRepeated},
		{name: "null first", doc: `{"id":null,"id":"b"}`, path: "id", err: core.ErrRepeated},
		{name: "other case", doc: `{"ID":"a"}`, path: "id", err: core.ErrInvalid},
		{name: "other case too", doc: `{"id":"a","Id":"b"}`, path: "id", err: core.ErrInvalid},
		{name: "other case of outer", doc: `{"order":{"id":"a"},"ORDER":{"id":"b"}}`, path: "order.id", err: core.ErrInvalid},
		{name: "long s", doc: `{"sku":"a","ſku":"b"}`, path: "sku", err: core.ErrInvalid},
		{name: "long s escaped", doc: `{"sku":"a","\u017fku":"b"}`, path: "sku", err: core.ErrInvalid},
		{name: "Kelvin sign", doc: "{\"sku\":\"a\",\"s\u212au\":\"b\"}", path: "sku", err: core.ErrInvalid},
		{name: "dotted capital i", doc: `{"id":"a","İd":"b"}`, path: "id", err: core.ErrInvalid},
		{name: "dotless i", doc: `{"id":"a","ıd":"b"}`, path: "id", err: core.ErrInvalid},
		{name: "high surrogate alone", doc: `{"id":"\ud83d"}`, path: "id", err: core.ErrInvalid},
		{name: "high surrogate before another escape", doc: `{"id":"\ud83d\u0061"}`, path: "id", err: core.ErrInvalid},
		{name: "low surrogate alone", doc: `{"id":"\ude00"}`, path: "id", err: core.ErrInvalid},
		{name: "half a pair in a name", doc: `{"\ud83d":1,"id":"a"}`, path: "id", err: core.ErrInvalid},
		{name: "broken UTF-8", doc: "{\"id\":\"a\xff\"}", path: "id", err: core.ErrInvalid},
		{name: "byte order mark", doc: "\ufeff{\"id\":\"a\"}", path: "id", err: core.ErrInvalid},
		{name: "second value", doc: `{"id":"a"}{"id":"b"}`, path: "id", err: core.ErrInvalid},
		{name: "trailing text", doc: `{"id":"a"} x`, path: "id", err: core.ErrInvalid},
		{name: "cut off", doc: `{"id":"a"`, path: "id", err: core.ErrInvalid},
		{name: "too deep", doc: `{"x":` + strings.Repeat("[", deepest+1) + strings.Repeat("]", deepest+1) + `,"id":1}`, path: "id", err: core.ErrInvalid},
		{name: "much too deep", doc: strings.Repeat(`{"x":`, 20_000) + "1" + strings.Repeat("}", 20_000), path: "id", err: core.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := strictJSON([]byte(tc.doc), strings.Split(tc.path, "."))
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s in %s = %q, %v; want %q, %v", tc.path, tc.doc, got, err, tc.want, tc.err)
			}
		})
	}
}

func strictJSON(doc []byte, path []string) (string, error) {
	if err := checkJSON(doc); err != nil {
		return "", err
	}
	return jsonValue(doc, path)
}

// FuzzJSONValue holds the scanner against encoding/json: what it accepts is what
// a handler sees that decodes the body into a struct, into a map, or the first
// value only.
func FuzzJSONValue(f *testing.F) {
	for _, doc := range []string{
		`{"sku":"a","order":{"sku":"b"}}`, `{"sku":1,"order":{"sku":-2}}`, `{"order":{"sku":true,"x":[{}]},"sku":"\ud83d\ude00"}`,
		`{"sku":"a","ſku":"b"}`, `{"sku":"a","SKU":"b"}`, `{"sku":"a"}{"sku":"b"}`, "{\"order\":{\"s\u212au\":1}}",
		`{"sku":1.0}`, `{"sku":null}`, `{"sku":[]}`, `[]`, `"sku"`, `{"x":"\"}","sku":"\\"}`, `{"order":{"order":{}},"sku":1e400}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var asStruct struct {
			SKU   any `json:"sku"`
			Order struct {
				SKU any `json:"sku"`
			} `json:"order"`
		}
		var asMap map[string]any
		decode := func(to any) error {
			d := json.NewDecoder(bytes.NewReader(doc))
			d.UseNumber()
			return d.Decode(to)
		}
		if got, err := strictJSON(doc, []string{"sku"}); err == nil {
			// A struct cannot be decoded if "order" is no object; the rest of it is.
			var wrong *json.UnmarshalTypeError
			if err := decode(&asStruct); err != nil && !errors.As(err, &wrong) {
				t.Fatalf("accepted %q from what encoding/json refuses: %v", got, err)
			}
			if err := decode(&asMap); err != nil {
				t.Fatalf("accepted %q from what encoding/json refuses: %v", got, err)
			}
			if inStruct, inMap := fmt.Sprint(asStruct.SKU), fmt.Sprint(asMap["sku"]); got != inStruct || got != inMap {
				t.Fatalf("sku = %q; a struct has %q and a map %q", got, inStruct, inMap)
			}
		}
		asMap = nil
		if got, err := strictJSON(doc, []string{"order", "sku"}); err == nil {
			if err := decode(&asStruct); err != nil {
				t.Fatalf("accepted %q from what encoding/json refuses: %v", got, err)
			}
			if err := decode(&asMap); err != nil {
				t.Fatalf("accepted %q from what encoding/json refuses: %v", got, err)
			}
			inMap := fmt.Sprint(asMap["order"].(map[string]any)["sku"])
			if inStruct := fmt.Sprint(asStruct.Order.SKU); got != inStruct || got != inMap {
				t.Fatalf("order.sku = %q; a struct has %q and a map %q", got, inStruct, inMap)
			}
		}
	})
}

// FuzzSameName checks that a name that encoding/json takes for another is never
// thought to be a different one.
func FuzzSameName(f *testing.F) {
	for _, name := range []string{"sku", "SKU", "ſku", "s\u212au", "\uffff", "İ", "sku\x00", "ǆ", "ǅ"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Skip()
		}
		var into struct {
			SKU *int `json:"sku"`
		}
		if err := json.Unmarshal([]byte("{"+string(quoted)+":1}"), &into); err != nil {
			t.Skip()
		}
		if into.SKU != nil && !sameName(name, "sku") {
			t.Errorf("encoding/json takes %q for sku", name)
		}
	})
}
