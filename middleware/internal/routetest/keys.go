package routetest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

func keyComesFromWhereItSays(t *testing.T, s Surface) {
	const secret = "s3cret"
	tenant := map[string]func(*http.Request) (string, error){"tenant": func(r *http.Request) (string, error) {
		switch v := r.Header.Get("X-Tenant"); v {
		case "missing":
			return "", core.ErrMissing
		case "large":
			return "", fmt.Errorf("%w: %s", core.ErrTooLarge, secret)
		case "broken":
			return "", errors.New(secret)
		default:
			return v, nil
		}
	}}
	const jsonType, formType = "application/json", "application/x-www-form-urlencoded"
	for _, tc := range []struct {
		name    string
		key     string
		values  map[string]func(*http.Request) (string, error)
		method  string // POST unless given
		target  string // of route /products/{sku}/{rest...}; "/products/a/r" unless given
		body    string
		headers []string
		want    string // the key; "" if refused
		status  int    // if refused; 400 unless given
	}{
		{name: "literal", key: "all", want: "all"},
		{name: "path", key: "stock:{path.sku}", want: "stock:a"},
		{name: "path is escaped", key: "stock:{path.sku}", target: "/products/a:b/r", want: "stock:a%3Ab"},
		{name: "query", key: "stock:{query.x}", target: "/products/a/r?y=2&x=1", want: "stock:1"},
		{name: "two of the query", key: "{query.x}:{query.y}", target: "/products/a/r?y=2&x=1", want: "1:2"},
		{name: "query missing", key: "stock:{query.x}"},
		{name: "query empty", key: "stock:{query.x}", target: "/products/a/r?x="},
		{name: "query repeated", key: "stock:{query.x}", target: "/products/a/r?x=1&x=2"},
		{name: "query in another case", key: "stock:{query.x}", target: "/products/a/r?X=1"},
		{name: "header", key: "stock:{header.x-tenant}", headers: []string{"X-Tenant", "t1"}, want: "stock:t1"},
		{name: "header missing", key: "stock:{header.X-Tenant}"},
		{name: "header empty", key: "stock:{header.X-Tenant}", headers: []string{"X-Tenant", ""}},
		{name: "header repeated", key: "stock:{header.X-Tenant}", headers: []string{"X-Tenant", "a", "X-Tenant", "b"}},
		{name: "client address", key: "client:{client.ip}", want: "client:127.0.0.1"},
		{name: "client address from nobody trusted", key: "client:{client.ip}", headers: []string{"X-Forwarded-For", "1.2.3.4", "X-Real-Ip", "1.2.3.4"}, want: "client:127.0.0.1"},
		{name: "own value", key: "stock:{tenant}", values: tenant, headers: []string{"X-Tenant", "t1"}, want: "stock:t1"},
		{name: "own value empty", key: "stock:{tenant}", values: tenant},
		{name: "own value missing", key: "stock:{tenant}", values: tenant, headers: []string{"X-Tenant", "missing"}},
		{name: "own value's error", key: "stock:{tenant}", values: tenant, headers: []string{"X-Tenant", "broken"}},
		{name: "own value too large", key: "stock:{tenant}", values: tenant, headers: []string{"X-Tenant", "large"}, status: 413},
		{name: "several", key: "{path.sku}/{query.x}:{header.X-Tenant}", target: "/products/a/r?x=1", headers: []string{"X-Tenant", "t"}, want: "a/1:t"},
		{name: "JSON body", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType}, want: "stock:a"},
		{name: "JSON body, two values", key: "{body.order.sku}:{body.id}", body: `{"id":7,"order":{"sku":"a"}}`, headers: []string{"Content-Type", jsonType + "; charset=UTF-8"}, want: "a:7"},
		{name: "JSON body with GET", key: "stock:{body.sku}", method: "GET", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType}},
		{name: "JSON body, repeated", key: "stock:{body.sku}", body: `{"sku":"a","SKU":"b"}`, headers: []string{"Content-Type", jsonType}},
		{name: "JSON body without type", key: "stock:{body.sku}", body: `{"sku":"a"}`},
		{name: "compressed body", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}},
		{name: "no body", key: "stock:{body.sku}", headers: []string{"Content-Type", jsonType}},
		{name: "form body", key: "stock:{body.sku}", body: "n=1&sku=a", headers: []string{"Content-Type", formType}, want: "stock:a"},
		{name: "form body beside the query", key: "stock:{body.sku}", target: "/products/a/r?sku=b", body: "sku=a", headers: []string{"Content-Type", formType}, want: "stock:a"},
		{name: "form body with DELETE", key: "stock:{body.sku}", method: "DELETE", body: "sku=a", headers: []string{"Content-Type", formType}},
		{name: "multipart body", key: "stock:{body.sku}", body: "--x\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\na\r\n--x--\r\n", headers: []string{"Content-Type", "multipart/form-data; boundary=x"}},
		{name: "JSON body in UTF-8", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType + "; charset=UTF-8"}, want: "stock:a"},
		{name: "JSON body in UTF-16", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType + "; charset=utf-16"}},
		{name: "JSON body with DELETE", key: "stock:{body.sku}", method: "DELETE", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType}, want: "stock:a"},
		{name: "JSON body, repeated in the same case", key: "stock:{body.sku}", body: `{"sku":"a","sku":"b"}`, headers: []string{"Content-Type", jsonType}},
		{name: "JSON body with two types", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType, "Content-Type", "text/plain"}},
		{name: "JSON body with the type in capitals", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", "Application/JSON"}},
		{name: "JSON body with a malformed type", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType + " ;;"}},
		{name: "JSON body of another type", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", "application/x+json"}},
		{name: "JSON body as a form", key: "stock:{body.sku}", body: `{"sku":"a","x":"&sku=b&"}`, headers: []string{"Content-Type", formType}},
		{name: "identity encoding", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType, "Content-Encoding", "identity"}, want: "stock:a"},
		{name: "rest of the path", key: "stock:{path.rest}", target: "/products/a/b/c", want: "stock:" + core.Escape(s.Rest)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := Open(t)
			srv := Serve(t, s.one(t, "/products/{sku}/{rest...}", TellKey, Wrap{Engine: e, Policy: core.Policy{Key: tc.key}, Values: tc.values}))
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			if tc.target == "" {
				tc.target = "/products/a/r"
			}
			a := Send(t, srv, NewRequest(t, srv, tc.method, tc.target, tc.body, tc.headers...))
			if tc.want != "" {
				if a.Status != 200 || a.Body != tc.want {
					t.Errorf("got %d %q; want the key %q", a.Status, a.Body, tc.want)
				}
				return
			}
			if tc.status == 0 {
				a.MustBe(t, 400, "LOCK_KEY_INVALID")
			} else {
				a.MustBe(t, tc.status, "BODY_TOO_LARGE")
			}
			if p := a.Problem.Placeholder; p == "" || !strings.Contains(tc.key, "{"+p+"}") {
				t.Errorf("placeholder is %q in %s", p, a.Body)
			}
			if strings.Contains(a.Body, secret) {
				t.Errorf("the error's text is shown: %s", a.Body)
			}
		})
	}
}

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
