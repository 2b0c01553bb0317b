package routetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
)

func handlersFindTheWholeBody(t *testing.T, s Surface) {
	const doc = `{"sku":"a"}`
	for _, tc := range []struct {
		name, contentType, body string
		read                    func(*http.Request) (string, error)
		want                    string
	}{
		{name: "raw", contentType: "application/json", body: doc, want: doc, read: func(r *http.Request) (string, error) {
			b, err := io.ReadAll(r.Body)
			return string(b), err
		}},
		{name: "JSON", contentType: "application/json", body: doc, want: "a", read: func(r *http.Request) (string, error) {
			var order struct{ SKU string }
			err := json.NewDecoder(r.Body).Decode(&order)
			return order.SKU, err
		}},
		{name: "form", contentType: "application/x-www-form-urlencoded", body: "sku=a", want: "a", read: func(r *http.Request) (string, error) {
			return r.PostFormValue("sku"), nil
		}},
	} {
		for _, chunked := range []bool{false, true} {
			for _, key := range []string{"k", "{body.sku}"} {
				t.Run(fmt.Sprintf("%s, chunked %v, key %s", tc.name, chunked, key), func(t *testing.T) {
					e, _ := Open(t)
					srv := Serve(t, s.one(t, "POST /", func(_ http.ResponseWriter, r *http.Request) {
						if got, err := tc.read(r); got != tc.want || err != nil {
							t.Errorf("read %q, %v; want %q", got, err, tc.want)
						}
					}, Wrap{Engine: e, Policy: core.Policy{Key: "a:" + key}}, Wrap{Engine: e, Policy: core.Policy{Key: "b:" + key}}))
					req := NewRequest(t, srv, http.MethodPost, "/", tc.body, "Content-Type", tc.contentType)
					if chunked {
						req.Body, req.ContentLength = io.NopCloser(req.Body), -1
					}
					Send(t, srv, req).MustBe(t, 200, "")
				})
			}
		}
	}
}

func bodyOverTheLimit(t *testing.T, s Surface) {
	const limit = 100
	long := `{"sku":"a","x":"` + strings.Repeat("x", 2*limit) + `"}`
	exact := `{"sku":"` + strings.Repeat("a", limit-10) + `"}`
	cut := func(w http.ResponseWriter, r *http.Request) { r.Body = http.MaxBytesReader(w, r.Body, limit/2) }
	for _, tc := range []struct {
		name, key, body string
		chunked         bool
		before          func(http.ResponseWriter, *http.Request)
		reads           string // what the handler reads; body unless given
		status          int
		code            string
	}{
		{name: "needed, known length", key: "{body.sku}", body: long, status: 413, code: "BODY_TOO_LARGE"},
		{name: "needed, unknown length", key: "{body.sku}", body: long, chunked: true, status: 413, code: "BODY_TOO_LARGE"},
		{name: "needed, just fits", key: "{body.sku}", body: exact, status: 200},
		{name: "needed, unknown length, just fits", key: "{body.sku}", body: exact, chunked: true, status: 200},
		{name: "not needed, known length", key: "k", body: long, status: 200},
		{name: "not needed, unknown length", key: "k", body: long, chunked: true, status: 200},
		{name: "not needed, replaced by a longer one", key: "k", body: "short", reads: long, status: 200, before: func(_ http.ResponseWriter, r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(long))
		}},
		{name: "cut off before, not needed", key: "k", body: exact, before: cut, status: 413, code: "BODY_TOO_LARGE"},
		{name: "cut off before, needed", key: "{body.sku}", body: exact, before: cut, status: 413, code: "BODY_TOO_LARGE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := Open(t)
			if tc.reads == "" {
				tc.reads = tc.body
			}
			router := s.one(t, "POST /", func(_ http.ResponseWriter, r *http.Request) {
				if got, err := io.ReadAll(r.Body); err != nil || string(got) != tc.reads {
					t.Errorf("the handler reads %d bytes, %v", len(got), err)
				}
			}, Wrap{Engine: e, Policy: core.Policy{Key: tc.key}, BodyLimit: limit})
			srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.before != nil {
					tc.before(w, r)
				}
				router.ServeHTTP(w, r)
			}))
			req := NewRequest(t, srv, http.MethodPost, "/", tc.body, "Content-Type", "application/json")
			if tc.chunked {
				req.Body, req.ContentLength = io.NopCloser(req.Body), -1
			}
			Send(t, srv, req).MustBe(t, tc.status, tc.code)
		})
	}
}

// uploadedFilesAreRemoved compares with a handler that has no lock: net/http removes the files,
// and Go 1.27 does not over HTTP/2.
func uploadedFilesAreRemoved(t *testing.T, s Surface) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			upload := func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(1); err != nil {
					t.Error(err)
					return
				}
				if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
					t.Errorf("the upload is not in a file (%v), so that nothing is tested", err)
				}
				_, _ = fmt.Fprint(w, r.MultipartForm.File["file"][0].Size)
			}
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, err := form.CreateFormFile("file", "f")
			if err != nil {
				t.Fatal(err)
			}
			const size = 12 << 20 // beyond what mime/multipart keeps in memory at least
			if _, err := part.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if err := form.Close(); err != nil {
				t.Fatal(err)
			}
			left := func(h http.Handler) int {
				srv := Serve(t, h, http2)
				a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/", body.String(), "Content-Type", form.FormDataContentType()))
				if a.Body != fmt.Sprint(size) {
					t.Errorf("got %q", a.Body)
				}
				srv.Close()
				files, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				return len(files)
			}
			if n := left(http.HandlerFunc(upload)); n > 0 {
				t.Skipf("net/http of %s leaves %d file(s) itself, without a lock", runtime.Version(), n)
			}
			e, _ := Open(t)
			if n := left(s.one(t, "POST /", upload, Wrap{Engine: e, Policy: core.Policy{Key: "k"}})); n > 0 {
				t.Errorf("%d file(s) stay behind", n)
			}
		})
	}
}
