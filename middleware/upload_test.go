package middleware_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

func TestUploadReachesTheHandlerWholeAndItsFilesAreRemoved(t *testing.T) {
	const limit = 4 << 10
	for _, tc := range []struct {
		name    string
		size    int
		chunked bool
	}{
		{name: "under the body limit", size: limit / 2},
		{name: "over the body limit", size: 64 * limit},
		{name: "under the body limit, of unknown length", size: limit / 2, chunked: true},
		{name: "over the body limit, of unknown length", size: 64 * limit, chunked: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			files := func() int {
				t.Helper()
				found, err := os.ReadDir(dir)
				if err != nil {
					t.Error(err)
				}
				return len(found)
			}
			s := newSite(t)
			r := newRouter()
			r.MaxMultipartMemory = 1 // every file goes to disk
			r.POST("/", middleware.Lock(s.locks, core.Policy{Key: "k"}, middleware.WithBodyLimit(limit)), func(c *gin.Context) {
				header, err := c.FormFile("file")
				if err != nil {
					t.Error(err)
					return
				}
				if files() != 1 {
					t.Errorf("%d files hold the upload; want 1, or nothing is tested", files())
				}
				f, err := header.Open()
				if err != nil {
					t.Error(err)
					return
				}
				sum := sha256.New()
				if _, err := io.Copy(sum, f); err != nil {
					t.Error(err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				s.mustBeTaken(t, "k", "while the handler reads the upload")
				c.String(http.StatusOK, "%s %s %x", c.PostForm("sku"), header.Filename, sum.Sum(nil))
			})
			srv := serve(t, http1, r)

			content := make([]byte, tc.size)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
			sum := sha256.Sum256(content)
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, err := form.CreateFormFile("file", "label.pdf")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := part.Write(content); err != nil {
				t.Fatal(err)
			}
			if err := form.WriteField("sku", "book"); err != nil {
				t.Fatal(err)
			}
			if err := form.Close(); err != nil {
				t.Fatal(err)
			}
			req := newRequest(t, srv, http.MethodPost, "/", &body)
			if tc.chunked {
				req.ContentLength = -1
			}
			req.Header.Set("Content-Type", form.FormDataContentType())
			want := "book label.pdf " + hex.EncodeToString(sum[:])
			if a := send(srv, req); a.err != nil || a.status != http.StatusOK || a.body != want {
				t.Errorf("got %+v; want %q", a, want)
			}
			srv.Close() // net/http removes them when the request is over
			if files() > 0 {
				t.Errorf("%d files stay behind", files())
			}
		})
	}
}

func TestSlowUploadOverHTTP2HoldsNoLock(t *testing.T) {
	s := newSite(t)
	reading := make(chan struct{})
	r := newRouter()
	r.POST("/", func(c *gin.Context) {
		if c.GetHeader("X-Slow") != "" {
			c.Request.Body = &watchedBody{ReadCloser: c.Request.Body, reading: reading}
		}
	}, middleware.Lock(s.locks, core.Policy{Key: "k"}), func(c *gin.Context) {
		body, err := c.GetRawData()
		c.String(http.StatusOK, "%s %v", body, err)
	})
	srv := serve(t, http2, r)
	body, upload := io.Pipe()
	slow := newRequest(t, srv, http.MethodPost, "/", body)
	slow.Header.Set("X-Slow", "1")
	slow.ContentLength = int64(len("first_last"))
	answer := sendAside(srv, slow)
	if _, err := io.WriteString(upload, "first"); err != nil {
		t.Fatal(err)
	}
	await(t, reading, "the first read of the slow body")
	if a := send(srv, newRequest(t, srv, http.MethodPost, "/", strings.NewReader("fast"))); a.body != "fast <nil>" {
		t.Errorf("the fast request gets %+v", a)
	}
	if _, err := io.WriteString(upload, "_last"); err != nil {
		t.Fatal(err)
	}
	if err := upload.Close(); err != nil {
		t.Error(err)
	}
	if a := await(t, answer, "the answer to the slow request"); a.body != "first_last <nil>" {
		t.Errorf("the slow request gets %+v", a)
	}
	s.mustBeFree(t, "k", "after all requests")
}

// watchedBody tells when it is read first.
type watchedBody struct {
	io.ReadCloser
	once    sync.Once
	reading chan<- struct{}
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.reading) })
	return b.ReadCloser.Read(p)
}
