package middleware_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

// bodyLimit is the limit of the matrix's locks; a small body stays under it.
const (
	bodyLimit = 512 // bytes
	smallBody = 300
)

// source is where a key comes from.
type source struct {
	name   string
	key    string // the policy's
	want   string // what it has to become for the matrix's requests
	ofBody bool
	option middleware.Option
}

// Each request of the matrix has a different value x in each place.
var sources = []source{
	{name: "literal", key: "all", want: "all"},
	{name: "path", key: "of:{path.x}", want: "of:from-path"},
	{name: "query", key: "of:{query.x}", want: "of:from-query"},
	{name: "header", key: "of:{header.X}", want: "of:from-header"},
	{name: "body", key: "of:{body.x}", want: "of:from-body", ofBody: true},
	{name: "client", key: "of:{client.ip}", want: "of:127.0.0.1"},
	{name: "value", key: "of:{user}", want: "of:from-auth", option: middleware.WithValue("user", func(c *gin.Context) (string, error) {
		user, _, _ := c.Request.BasicAuth()
		return user, nil
	})},
}

// shape is how a body is sent.
type shape struct {
	name    string
	size    int  // of the body as the handler means it, in bytes
	chunked bool // its length is not announced
	gzipped bool // it is sent compressed
	decoded bool // and a middleware before the lock decompresses it; else the handler does

	// ahead says that a lock whose key does not need the body leaves a copy of
	// it for the handler, so that it can be read in two ways one after the other.
	ahead bool
}

var shapes = []shape{
	{name: "empty"},
	{name: "empty-chunked", chunked: true},
	{name: "small", size: smallBody, ahead: true},
	{name: "small-chunked", size: smallBody, chunked: true},
	{name: "at-limit", size: bodyLimit, ahead: true},
	{name: "at-limit-chunked", size: bodyLimit, chunked: true},
	{name: "over-limit", size: bodyLimit + 1},
	{name: "over-limit-chunked", size: bodyLimit + 1, chunked: true},
	{name: "gzip", size: smallBody, gzipped: true},
	{name: "gzip-decoded", size: smallBody, gzipped: true, decoded: true, ahead: true},
	{name: "gzip-decoded-over-limit", size: 2 * bodyLimit, gzipped: true, decoded: true},
}

// outcome is what comes of a cell: the handler runs, or a problem is answered.
type outcome struct {
	status int
	code   string // empty if the handler runs
}

// expected is the table of rules; the first that fits counts.
func expected(b binder, k source, s shape) outcome {
	switch {
	case !k.ofBody:
		return outcome{status: http.StatusOK} // the body is the handler's alone
	case s.size > bodyLimit:
		return outcome{http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE"}
	case s.size == 0, // the value is missing
		s.gzipped && !s.decoded, // the lock decompresses nothing
		!b.keyed:                // it reads JSON and forms
		return outcome{http.StatusBadRequest, "LOCK_KEY_INVALID"}
	}
	return outcome{status: http.StatusOK}
}

// twice reports whether a body can be read from Request.Body and from gin's copy
// one after the other. Where it cannot, gin alone could not do it either.
func twice(k source, s shape) bool { return s.ahead || k.ofBody && !s.gzipped }

// TestEveryBinderUnderEveryKeyAndBody sends one request for each cell of binder,
// source of the key and shape of the body. Where the handler runs it has to read
// what was sent while the lock is held under the right key, and where it must
// not, the problem has to say why. The lock is free after either.
//
// LOCKAROUND_MATRIX names a file to write the results to, in Markdown.
func TestEveryBinderUnderEveryKeyAndBody(t *testing.T) {
	m := &matrix{site: newSite(t), results: map[string]string{}}
	m.server = serve(t, http1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.router.Load().ServeHTTP(w, r)
	}))
	for _, b := range binders {
		for _, k := range sources {
			for _, s := range shapes {
				name := b.name + "/" + k.name + "/" + s.name
				if !t.Run(name, func(t *testing.T) { m.results[name] = m.cell(t, b, k, s) }) {
					m.results[name] = "WRONG"
				}
			}
		}
	}
	if file := os.Getenv("LOCKAROUND_MATRIX"); file != "" {
		if err := os.WriteFile(file, []byte(m.markdown()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

type matrix struct {
	*site
	server  *httptest.Server
	router  atomic.Pointer[gin.Engine] // of the cell that is tested
	results map[string]string          // by the cell's name
}

// cell tests one cell and returns what came of it.
func (m *matrix) cell(t *testing.T, b binder, k source, s shape) string {
	sent := b.message(t, s.size)
	var (
		ran, again          bool
		first, second       string
		firstErr, secondErr error
	)
	r := newRouter()
	r.Use(func(c *gin.Context) {
		c.Next()
		m.mustBeFree(t, k.want, "after the lock's handler")
	})
	if s.decoded {
		r.Use(decompress)
	}
	r.POST("/:x", middleware.Lock(m.locks, core.Policy{Key: k.key}, middleware.WithBodyLimit(bodyLimit), k.option), func(c *gin.Context) {
		ran = true
		lease, ok := core.LeaseFrom(c.Request.Context())
		if !ok || lease.Key() != k.want || lease.Err() != nil {
			t.Errorf("the handler's lease is %v, found %v; want that of %s", lease, ok, k.want)
		}
		m.mustBeTaken(t, k.want, "while the handler runs")
		if s.gzipped && !s.decoded {
			decompress(c)
		}
		first, firstErr = b.read(c)
		if again = b.again != nil; again {
			second, secondErr = b.again(c)
		}
	})
	m.router.Store(r)

	got := m.send(t, b, s, sent.plain)
	want := expected(b, k, s)
	if got != want || ran != (want.code == "") {
		t.Fatalf("got %+v, the handler ran: %v; want %+v", got, ran, want)
	}
	if !ran {
		return fmt.Sprintf("%d %s", got.status, got.code)
	}
	if s.size == 0 {
		// What a binder makes of nothing is gin's matter.
		if first != b.nothing || (firstErr != nil) != b.needsBody {
			t.Errorf("the handler reads %q, %v; want %q and an error: %v", first, firstErr, b.nothing, b.needsBody)
		}
		return "runs"
	}
	if first != b.sees(sent) || firstErr != nil {
		t.Errorf("the handler reads %q, %v; want %q", first, firstErr, b.sees(sent))
	}
	switch {
	case !again:
		return "runs"
	case b.copies || twice(k, s):
		if second != b.sees(sent) || secondErr != nil {
			t.Errorf("the handler reads %q, %v the second time; want %q", second, secondErr, b.sees(sent))
		}
		return "runs, reads twice"
	case !errors.Is(secondErr, io.EOF):
		t.Errorf("the handler reads %q, %v the second time; want %v", second, secondErr, io.EOF)
	}
	return "runs, reads once"
}

// send sends the request of a cell.
func (m *matrix) send(t *testing.T, b binder, s shape, body string) outcome {
	t.Helper()
	var sent io.Reader = strings.NewReader(body)
	if s.gzipped {
		sent = compress(t, body)
	}
	req := newRequest(t, m.server, http.MethodPost, "/from-path?x=from-query", sent)
	if s.gzipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	if s.chunked {
		req.Body, req.ContentLength = io.NopCloser(sent), -1
	}
	req.Header.Set("Content-Type", b.contentType)
	req.Header.Set("X", "from-header")
	req.SetBasicAuth("from-auth", "secret")
	a := send(m.server, req)
	if a.err != nil {
		t.Fatal(a.err)
	}
	return outcome{a.status, codeOf(t, a)}
}

func compress(t *testing.T, body string) *bytes.Reader {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := io.WriteString(z, body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if buf.Len() >= bodyLimit {
		t.Fatalf("%d bytes when compressed; want less than the limit, so that the limit is found out while reading", buf.Len())
	}
	return bytes.NewReader(buf.Bytes())
}

// decompress leaves the announced length as it came, as gin-contrib/gzip does:
// that of the compressed body.
func decompress(c *gin.Context) {
	z, err := gzip.NewReader(c.Request.Body)
	if err != nil {
		_ = c.AbortWithError(http.StatusBadRequest, err) // returns what it is given
		return
	}
	c.Request.Header.Del("Content-Encoding")
	c.Request.Header.Del("Content-Length")
	c.Request.Body = z
}

// markdown returns the results as a table.
func (m *matrix) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "The body limit is %d bytes, a small body has %d.\n\n| binder | key |", bodyLimit, smallBody)
	for _, s := range shapes {
		out.WriteString(" " + s.name + " |")
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(shapes)) + "\n")
	for _, b := range binders {
		for _, k := range sources {
			fmt.Fprintf(&out, "| %s | `%s` |", b.name, k.key)
			for _, s := range shapes {
				out.WriteString(" " + m.results[b.name+"/"+k.name+"/"+s.name] + " |")
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}
