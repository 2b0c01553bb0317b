package httplock

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// tripFunc is a RoundTripper that is a function.
type tripFunc func(*http.Request) (*http.Response, error)

func (f tripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// trip sends r by way of SendTokens to check, which answers nothing.
func trip(r *http.Request, check func(sent *http.Request)) error {
	res, err := SendTokens(tripFunc(func(sent *http.Request) (*http.Response, error) {
		check(sent)
		return nil, http.ErrSkipAltProtocol
	})).RoundTrip(r)
	if res != nil {
		_ = res.Body.Close()
	}
	return err
}

// closer notes that it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestTokensOfTheContextAreSent(t *testing.T) {
	one, two := fence.Token{Key: "a:1", Number: 1}, fence.Token{Key: "b", Number: 2}
	for _, tc := range []struct {
		name   string
		tokens []fence.Token
		had    []string
		want   []string
	}{
		{"none", nil, nil, nil},
		{"none, and the caller's own", nil, []string{"x=1"}, []string{"x=1"}},
		{"two", []fence.Token{one, two}, nil, []string{"a%3A1=1", "b=2"}},
		{"one in place of the caller's own", []fence.Token{two}, []string{"x=1"}, []string{"b=2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(fence.NewContext(t.Context(), tc.tokens...), http.MethodPost, "/", nil)
			for _, v := range tc.had {
				r.Header.Add(fence.Header, v)
			}
			if err := trip(r, func(sent *http.Request) {
				if got := sent.Header[fence.Header]; !slices.Equal(got, tc.want) {
					t.Errorf("sent %q; want %q", got, tc.want)
				}
			}); err != http.ErrSkipAltProtocol {
				t.Errorf("got %v", err)
			}
			if got := r.Header[fence.Header]; !slices.Equal(got, tc.had) {
				t.Errorf("the caller's request was changed to %q", got)
			}
		})
	}
}

func TestMoreTokensThanCanTravelSendNothing(t *testing.T) {
	var many []fence.Token
	for i := range fence.MaxTokens + 1 {
		many = append(many, fence.Token{Key: strconv.Itoa(i), Number: 1})
	}
	body := &closer{Reader: strings.NewReader("x")}
	r := httptest.NewRequestWithContext(fence.NewContext(t.Context(), many...), http.MethodPost, "/", body)
	err := trip(r, func(*http.Request) { t.Error("it was sent") })
	if err == nil || !strings.Contains(err.Error(), "65") || !body.closed {
		t.Errorf("got %v; body closed: %v", err, body.closed)
	}
}

func TestRedirectsDoNotCarryTokensToOthers(t *testing.T) {
	var seen []string
	note := func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get(fence.Header))
		if to := r.URL.Query()["to"]; len(to) > 0 {
			next := to[0]
			if len(to) > 1 {
				next += "?to=" + to[1]
			}
			http.Redirect(w, r, next, http.StatusTemporaryRedirect)
		}
	}
	home, other := routetest.Serve(t, http.HandlerFunc(note)), routetest.Serve(t, http.HandlerFunc(note))
	client := &http.Client{Transport: SendTokens(home.Client().Transport)}
	for _, tc := range []struct {
		name, url string
		want      []string
	}{
		{"same host", home.URL + "?to=/there", []string{"k=1", "k=1"}},
		{"other host", home.URL + "?to=" + other.URL, []string{"k=1", ""}},
		{"other host and back", home.URL + "?to=" + other.URL + "&to=" + home.URL, []string{"k=1", "", ""}},
	} {
		seen = nil
		ctx := fence.NewContext(t.Context(), fence.Token{Key: "k", Number: 1})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, tc.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if !slices.Equal(seen, tc.want) {
			t.Errorf("%s: the servers saw %q; want %q", tc.name, seen, tc.want)
		}
	}
}

func TestHopAwayFromTLSGoesWithoutTokens(t *testing.T) {
	ctx := fence.NewContext(t.Context(), fence.Token{Key: "k", Number: 1})
	for first, want := range map[string]string{"https://h.example/": "", "http://h.example/": "k=1", "http://H.example/": "k=1", "https://h.example:8443/": ""} {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://h.example/there", nil)
		r.Response = &http.Response{Request: httptest.NewRequestWithContext(ctx, http.MethodGet, first, nil)}
		if err := trip(r, func(sent *http.Request) {
			if got := sent.Header.Get(fence.Header); got != want {
				t.Errorf("redirected from %s: sent %q; want %q", first, got, want)
			}
		}); err != http.ErrSkipAltProtocol {
			t.Error(err)
		}
	}
}

func TestIdleConnectionsAreClosedThroughTheSender(t *testing.T) {
	inner := &idler{}
	(&http.Client{Transport: SendTokens(inner)}).CloseIdleConnections()
	if !inner.closed {
		t.Error("they stay")
	}
	(&http.Client{Transport: SendTokens(tripFunc(nil))}).CloseIdleConnections() // has none
}

type idler struct {
	tripFunc
	closed bool
}

func (i *idler) CloseIdleConnections() { i.closed = true }

func TestFormsParsedBehindReadTokensAreRemovedWithTheRequest(t *testing.T) {
	const form = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n"
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(form))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	r.Header.Set(fence.Header, "k=1")
	ReadTokens(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil {
			t.Error(err)
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
	if r.MultipartForm == nil {
		t.Fatal("net/http would leave the files of the upload behind")
	}
	if err := r.MultipartForm.RemoveAll(); err != nil {
		t.Error(err)
	}
}
