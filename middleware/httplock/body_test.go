package httplock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestHandlersFindTheWholeBody(t *testing.T) {
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
					e, _ := routetest.Open(t)
					locks := Lock(e, core.Policy{Key: "a:" + key})(Lock(e, core.Policy{Key: "b:" + key})(
						http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
							if got, err := tc.read(r); got != tc.want || err != nil {
								t.Errorf("read %q, %v; want %q", got, err, tc.want)
							}
						})))
					s := routetest.Serve(t, locks)
					req := routetest.NewRequest(t, s, http.MethodPost, "/", tc.body, "Content-Type", tc.contentType)
					if chunked {
						req.Body, req.ContentLength = io.NopCloser(req.Body), -1
					}
					routetest.Send(t, s, req).MustBe(t, 200, "")
				})
			}
		}
	}
}

func TestBodyOverTheLimit(t *testing.T) {
	const limit = 100
	long := `{"sku":"a","x":"` + strings.Repeat("x", 2*limit) + `"}`
	exact := `{"sku":"` + strings.Repeat("a", limit-10) + `"}`
	for _, tc := range []struct {
		name, key, body string
		chunked         bool
		cut             int64 // by a MaxBytesReader before the lock
		status          int
		code            string
	}{
		{name: "needed, known length", key: "{body.sku}", body: long, status: 413, code: "BODY_TOO_LARGE"},
		{name: "needed, unknown length", key: "{body.sku}", body: long, chunked: true, status: 413, code: "BODY_TOO_LARGE"},
		{name: "needed, just fits", key: "{body.sku}", body: exact, status: 200},
		{name: "needed, unknown length, just fits", key: "{body.sku}", body: exact, chunked: true, status: 200},
		{name: "not needed, known length", key: "k", body: long, status: 200},
		{name: "not needed, unknown length", key: "k", body: long, chunked: true, status: 200},
		{name: "cut off before, not needed", key: "k", body: exact, cut: limit / 2, status: 413, code: "BODY_TOO_LARGE"},
		{name: "cut off before, needed", key: "{body.sku}", body: exact, cut: limit / 2, status: 413, code: "BODY_TOO_LARGE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := routetest.Open(t)
			locked := Lock(e, core.Policy{Key: tc.key}, WithBodyLimit(limit))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if got, err := io.ReadAll(r.Body); err != nil || string(got) != tc.body {
					t.Errorf("the handler reads %d bytes, %v", len(got), err)
				}
			}))
			s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.cut > 0 {
					r.Body = http.MaxBytesReader(w, r.Body, tc.cut)
				}
				locked.ServeHTTP(w, r)
			}))
			req := routetest.NewRequest(t, s, http.MethodPost, "/", tc.body, "Content-Type", "application/json")
			if tc.chunked {
				req.Body, req.ContentLength = io.NopCloser(req.Body), -1
			}
			routetest.Send(t, s, req).MustBe(t, tc.status, tc.code)
		})
	}
}

func TestBodyIsLeftUnreadOnRequest(t *testing.T) {
	e, _ := routetest.Open(t)
	locked := Lock(e, core.Policy{Key: "k"}, WithoutBodyBuffer())
	var before io.ReadCloser
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before = r.Body
		locked(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Body != before {
				t.Error("the body was replaced")
			}
		})).ServeHTTP(w, r)
	}))
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", "text")).MustBe(t, 200, "")
}

func TestUploadedFilesAreRemoved(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			e, _ := routetest.Open(t)
			s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(1); err != nil {
					t.Error(err)
					return
				}
				if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
					t.Errorf("the upload is not in a file (%v), so that nothing is tested", err)
				}
				_, _ = fmt.Fprint(w, r.MultipartForm.File["file"][0].Size)
			})), http2)
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
			a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", body.String(), "Content-Type", form.FormDataContentType()))
			if a.Body != fmt.Sprint(size) {
				t.Errorf("got %q", a.Body)
			}
			s.Close()
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Errorf("%v stay behind, %v", files, err)
			}
		})
	}
}

func TestFormsOfTheHandlerAreFoundOutside(t *testing.T) {
	e, _ := routetest.Open(t)
	locked := Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.FormValue("sku")
		panic(http.ErrAbortHandler)
	}))
	seen := make(chan string, 1)
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			_ = recover()
			seen <- r.PostForm.Get("sku") + r.Form.Get("sku")
		}()
		locked.ServeHTTP(w, r)
	}))
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", "sku=a", "Content-Type", "application/x-www-form-urlencoded"))
	if got := <-seen; got != "aa" {
		t.Errorf("got %q; want the value in both forms", got)
	}
}
