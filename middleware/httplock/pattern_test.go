package httplock

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestPatternIsReadAsItsRouterReadsIt(t *testing.T) {
	for _, tc := range []struct {
		text  string
		place place
		names []string
	}{
		{"/", place{shape: "/{...}"}, nil},
		{"/x", place{shape: "/x"}, nil},
		{"/x/{$}", place{shape: "/x/{$}"}, nil},
		{"/x/", place{shape: "/x/{...}"}, nil},
		{"/x/{rest...}", place{shape: "/x/{...}"}, []string{"rest"}},
		{"POST /products/{sku}/deduct", place{method: "POST", shape: "/products/{}/deduct"}, []string{"sku"}},
		{"POST \t /x", place{method: "POST", shape: "/x"}, nil},
		{"shop.example/{a}/{b}", place{host: "shop.example", shape: "/{}/{}"}, []string{"a", "b"}},
		{"GET shop.example/", place{method: "GET", host: "shop.example", shape: "/{...}"}, nil},
		{"/x/*", place{shape: "/x/*"}, []string{"*"}},                                  // chi
		{"/x/{id:[0-9]{2}}.json", place{shape: "/x/{:[0-9]{2}}.json"}, []string{"id"}}, // chi
	} {
		p, err := parsePattern(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		if got := (place{p.method, p.host, p.shape}); got != tc.place || !slices.Equal(p.names, tc.names) {
			t.Errorf("%s: got %+v %q; want %+v %q", tc.text, got, p.names, tc.place, tc.names)
		}
		if fixed := !strings.ContainsAny(strings.ReplaceAll(p.shape, "{$}", ""), "{*"); p.fixed != fixed {
			t.Errorf("%s: fixed is %v", tc.text, p.fixed)
		}
	}
	for text, says := range map[string]string{
		"":          "no path",
		"POST":      "no path",
		"POST x":    "no path",
		"{host}/x":  "before the path",
		"/{a":       "never closed",
		"/{}":       "no name",
		"/{...}":    "no name",
		"/{:[0-9]}": "no name",
		"/{a}/{a}":  "twice",
		"/{$}/x":    "not at the end",
		"/{a...}/x": "not at the end",
	} {
		if _, err := parsePattern(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v; want an error about %q", text, err, says)
		}
	}
}

// FuzzPattern holds the patterns against http.ServeMux: what it takes is read,
// and two routes that it serves side by side are not taken for one.
func FuzzPattern(f *testing.F) {
	for _, pair := range [][2]string{
		{"/", "GET /"},
		{"POST /products/{sku}/deduct", "POST /products/{id}/deduct"},
		{"/x/", "/x/{rest...}"},
		{"/x/{$}", "/x/{y}"},
		{"a.b/x", "/x"},
		{"/a}b", "/*"},
		{"GET  /x", "GET\t/x"},
		{" / ", "/ x"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		mux := http.NewServeMux()
		if !tryHandle(mux, a) {
			return
		}
		p, err := parsePattern(a)
		if err != nil {
			t.Fatalf("%q: %v", a, err)
		}
		for _, name := range p.names {
			if name != "*" && !strings.Contains(a, "{"+name) {
				t.Fatalf("%q has no wildcard %q", a, name)
			}
		}
		if other := http.NewServeMux(); !tryHandle(other, p.muxText()) {
			t.Fatalf("%q becomes %q, which is refused", a, p.muxText())
		}
		if !tryHandle(mux, b) {
			return
		}
		q, err := parsePattern(b)
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if (place{p.method, p.host, p.shape}) == (place{q.method, q.host, q.shape}) {
			t.Fatalf("%q and %q are two routes, but one place", a, b)
		}
	})
}
