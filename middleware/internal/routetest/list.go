package routetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

// tellKeys is a handler that answers with the keys of the lock that it runs under.
func tellKeys(w http.ResponseWriter, r *http.Request) {
	lease, _ := core.LeaseFrom(r.Context())
	_, _ = fmt.Fprint(w, lease.Keys())
}

func listLocksEachElement(t *testing.T, s Surface) {
	for _, tc := range []struct {
		name, body  string
		keys        []string // the list's alone unless given
		allowEmpty  bool
		want        string // the keys; "" if refused
		placeholder string // if refused
		detail      string // likewise
	}{
		{name: "several", body: `{"id":7,"items":[{"sku":"b"},{"sku":"a"},{"sku":"b"}]}`, want: "[stock:a stock:b]"},
		{name: "beside another key", body: `{"id":7,"items":[{"sku":"b"}]}`, keys: []string{"{path.sku}:{body.id}", "stock:{body.items[].sku}"}, want: "[p:7 stock:b]"},
		{name: "empty", body: `{"items":[]}`, placeholder: "body.items[].sku", detail: "A required value is missing or empty."},
		{name: "empty and allowed", body: `{"items":[]}`, allowEmpty: true, want: "[]"},
		{name: "missing", body: `{}`, allowEmpty: true, placeholder: "body.items[].sku", detail: "A required value is missing or empty."},
		{name: "element without a value", body: `{"items":[{"sku":"s3cret"},{"sku":""}]}`, allowEmpty: true, placeholder: "body.items[1].sku", detail: "A required value is missing or empty."},
		{
			name: "element in another case", body: `{"items":[{"sku":"s3cret"},{"sku":"a","SKU":"b"}]}`, placeholder: "body.items[1].sku",
			detail: "A required value cannot be used: a name on the way to it differs from the key's by case only.",
		},
		{
			name: "list in another case", body: `{"items":[{"sku":"a"}],"Items":[{"sku":"b"}]}`, placeholder: "body.items[].sku",
			detail: "A required value cannot be used: a name on the way to it differs from the key's by case only.",
		},
		{name: "too many keys", body: elements(65, `{"sku":%d}`), detail: "There are more values than one request can have."},
		{name: "too many elements", body: elements(1025, `{"sku":"a","n":%d}`), placeholder: "body.items[].sku", detail: "There are more values than one request can have."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := Open(t)
			if tc.keys == nil {
				tc.keys = []string{"stock:{body.items[].sku}"}
			}
			srv := Serve(t, s.one(t, "POST /{sku}", tellKeys, Wrap{Engine: e, Policy: core.Policy{Keys: tc.keys, AllowEmpty: tc.allowEmpty}}))
			a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/p", tc.body, "Content-Type", "application/json"))
			if tc.want != "" {
				if a.Status != http.StatusOK || a.Body != tc.want {
					t.Errorf("got %d %s, want %s", a.Status, a.Body, tc.want)
				}
				return
			}
			a.MustBe(t, http.StatusBadRequest, "LOCK_KEY_INVALID")
			if a.Problem.Placeholder != tc.placeholder || a.Problem.Detail != tc.detail || strings.Contains(a.Body, "s3cret") {
				t.Errorf("got %s", a.Body)
			}
		})
	}
	t.Run("carts in any order", func(t *testing.T) {
		e, _ := Open(t)
		srv := Serve(t, s.one(t, "POST /{sku}", tellKeys, Wrap{Engine: e, Policy: core.Policy{Keys: []string{"stock:{body.items[].sku}"}, Wait: time.Minute}}))
		answers := make(chan Answer)
		const carts = 20
		for i := range carts {
			body := `{"items":[{"sku":"a"},{"sku":"b"},{"sku":"c"}]}`
			if i%2 > 0 {
				body = `{"items":[{"sku":"c"},{"sku":"b"},{"sku":"a"}]}`
			}
			go func() {
				answers <- Send(t, srv, NewRequest(t, srv, http.MethodPost, "/p", body, "Content-Type", "application/json"))
			}()
		}
		for range carts {
			if a := <-answers; a.Status != http.StatusOK || a.Body != "[stock:a stock:b stock:c]" {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
		}
	})
}

// elements is a body with a list of n elements.
func elements(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return `{"items":[` + strings.Join(all, ",") + `]}`
}
