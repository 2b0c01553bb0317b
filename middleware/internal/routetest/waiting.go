package routetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

// statusOf notes the status that a handler writes.
type statusOf struct {
	http.ResponseWriter
	status int
}

func (s *statusOf) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Gate tells when a request has come and with which status its handler ended.
func Gate(h http.Handler) (gated http.Handler, arrived chan struct{}, status chan int) {
	arrived, status = make(chan struct{}), make(chan int, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noted := &statusOf{ResponseWriter: w}
		close(arrived)
		h.ServeHTTP(noted, r)
		status <- noted.status
	}), arrived, status
}

func hangingUp(t *testing.T, s Surface) {
	const body = `{"sku":"a"}`
	for name, key := range map[string]string{"body not needed": "stock:{path.sku}", "body needed": "stock:{body.sku}"} {
		t.Run(name, func(t *testing.T) {
			e, _ := Open(t)
			release := Hold(t, e, "stock:a")
			h, arrived, status := Gate(s.one(t, "POST /{sku}", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: key, Wait: core.Forever}}))
			srv := Serve(t, h)
			conn := Dial(t, srv, fmt.Sprintf(
				"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			<-arrived
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if got := <-status; got != 499 {
				t.Errorf("status is %d; want 499", got)
			}
			release()
			if !Free(t, e, "stock:a") {
				t.Error("the request that is over holds the lock")
			}
		})
	}
}

func cancelling(t *testing.T, s Surface) {
	e, _ := Open(t)
	release := Hold(t, e, "k")
	router := s.one(t, "POST /", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: "k", Wait: core.Forever}})
	h, arrived, status := Gate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", r.Proto)
		}
		router.ServeHTTP(w, r)
	}))
	srv := Serve(t, h, true)
	ctx, cancel := context.WithCancel(t.Context())
	req := NewRequest(t, srv, http.MethodPost, "/", "text").WithContext(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := srv.Client().Do(req)
		if err == nil {
			res.Body.Close()
			t.Error("the cancelled request is answered")
		}
	}()
	<-arrived
	cancel()
	if got := <-status; got != 499 {
		t.Errorf("status is %d; want 499", got)
	}
	<-done
	release()
	if !Free(t, e, "k") {
		t.Error("the request that is over holds the lock")
	}
}

func cancelledBefore(t *testing.T, s Surface) {
	e, _ := Open(t)
	defer Hold(t, e, "k")()
	router := s.one(t, "GET /", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: "k", Wait: core.Forever}})
	srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		router.ServeHTTP(w, r.WithContext(ctx))
	}))
	if a := Get(t, srv, "/"); a.Status != 499 || a.Body != "" {
		t.Errorf("got %d %q; want 499 without a body", a.Status, a.Body)
	}
}

// watchedBody tells when it is first read.
type watchedBody struct {
	io.ReadCloser
	read func()
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.read()
	return b.ReadCloser.Read(p)
}

func slowUpload(t *testing.T, s Surface) {
	e, _ := Open(t)
	reading := make(chan struct{})
	router := s.one(t, "POST /", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, err)
	}, Wrap{Engine: e, Policy: core.Policy{Key: "k", Wait: core.Forever}})
	srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			r.Body = watchedBody{r.Body, sync.OnceFunc(func() { close(reading) })}
		}
		router.ServeHTTP(w, r)
	}))
	conn := Dial(t, srv, "POST / HTTP/1.1\r\nHost: x\r\nX-Slow: 1\r\nConnection: close\r\nContent-Length: 8\r\n\r\nfirs")
	<-reading
	if a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/", "fast")); a.Body != "fast <nil>" {
		t.Errorf("got %q", a.Body)
	}
	if _, err := io.WriteString(conn, "t_la"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(answer), "first_la <nil>") {
		t.Errorf("got %q, %v", answer, err)
	}
}

func bodyThatDoesNotCome(t *testing.T, s Surface) {
	e, _ := Open(t)
	for _, key := range []string{"k", "{body.x}"} {
		for _, tc := range []struct {
			name   string
			before func(http.ResponseWriter)
			after  func(net.Conn)
			status string
		}{
			{name: "broken off", status: "499", before: func(http.ResponseWriter) {}, after: func(conn net.Conn) {
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Error(err)
				}
			}},
			// The server's ReadTimeout, at an instant that the test can know.
			{name: "too slow", status: "408", after: func(net.Conn) {}, before: func(w http.ResponseWriter) {
				if err := http.NewResponseController(w).SetReadDeadline(time.Now()); err != nil {
					t.Error(err)
				}
			}},
		} {
			t.Run(tc.name+", key "+key, func(t *testing.T) {
				router := s.one(t, "POST /", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: key}})
				srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tc.before(w)
					router.ServeHTTP(w, r)
				}))
				conn := Dial(t, srv, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{")
				tc.after(conn)
				answer, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+tc.status+" ") {
					t.Errorf("got %q, %v; want %s", answer, err, tc.status)
				}
			})
		}
	}
}

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
