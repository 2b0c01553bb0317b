package body

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
)

func TestFormValueIsTheOnlyOne(t *testing.T) {
	for _, tc := range []struct {
		name, form, path string
		want             string
		err              error
	}{
		{name: "field", form: "sku=a&n=1", path: "sku", want: "a"},
		{name: "encoded", form: "n=1&%73ku=a%26b+c%2B", path: "sku", want: "a&b c+"},
		{name: "case matters", form: "SKU=b&sku=a", path: "sku", want: "a"},
		{name: "absent", form: "n=1", path: "sku", err: core.ErrMissing},
		{name: "empty", form: "sku=", path: "sku", err: core.ErrMissing},
		{name: "bare", form: "sku", path: "sku", err: core.ErrMissing},
		{name: "repeated", form: "sku=a&sku=b", path: "sku", err: core.ErrRepeated},
		{name: "repeated by encoding", form: "sku=a&%73ku=b", path: "sku", err: core.ErrRepeated},
		{name: "semicolon", form: "sku=a;n=1", path: "sku", err: core.ErrInvalid},
		{name: "broken escape", form: "n=%zz&sku=a", path: "sku", err: core.ErrInvalid},
		{name: "nested", form: "order.sku=a", path: "order.sku", err: core.ErrInvalid},
		{name: "JSON", form: `{"sku":"a","x":"&sku=b&"}`, path: "sku", err: core.ErrInvalid},
		{name: "JSON and more", form: `{"sku":"a"}&sku=b`, path: "sku", err: core.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := formValue([]byte(tc.form), strings.Split(tc.path, "."))
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s in %s = %q, %v; want %q, %v", tc.path, tc.form, got, err, tc.want, tc.err)
			}
		})
	}
}

// FuzzFormValue checks that a form is read as net/http reads it, and that no
// handler which takes JSON reads something else in it.
func FuzzFormValue(f *testing.F) {
	for _, form := range []string{"sku=a", "sku=a&sku=b", "a=1&sku=%41+b", `{"sku":"a"}&sku=b`, "sku=1;x", "&&sku=x=y&"} {
		f.Add(form)
	}
	f.Fuzz(func(t *testing.T, form string) {
		got, err := formValue([]byte(form), []string{"sku"})
		if err != nil {
			return
		}
		r, err := http.NewRequest(http.MethodPost, "/", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if err := r.ParseForm(); err != nil {
			t.Fatalf("accepted %q from what net/http refuses: %v", got, err)
		}
		if vs := r.PostForm["sku"]; len(vs) != 1 || vs[0] != got {
			t.Fatalf("sku = %q; net/http has %q", got, vs)
		}
		var into struct{ SKU any }
		if err := json.NewDecoder(strings.NewReader(form)).Decode(&into); err == nil && into.SKU != nil {
			t.Fatalf("%q is a form and JSON", form)
		}
	})
}
