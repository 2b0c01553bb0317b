package once

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// FuzzFingerprint compares two requests: whose parts differ, they have different fingerprints.
func FuzzFingerprint(f *testing.F) {
	f.Add("POST", "/a", "/a", "", []byte(""), "POST", "/a", "/a", "", []byte(""))
	f.Add("POST", "/a", "/a", "b", []byte(""), "POST", "/a", "/a", "", []byte("b"))
	f.Add("POST", "/a", "/ab", "", []byte(""), "POST", "/a/", "ab", "", []byte(""))
	f.Add("POST", "", "/", "\x00\x00\x00\x00\x00\x00\x00\x01a", []byte(""), "POST", "", "/", "", []byte("a"))
	f.Fuzz(func(t *testing.T, m1, route1, path1, query1 string, body1 []byte, m2, route2, path2, query2 string, body2 []byte) {
		of := func(method, route, path, query string, body []byte) ([32]byte, string) {
			u := &url.URL{Path: path, RawQuery: query}
			return fingerprint(&http.Request{Method: method, URL: u}, route, body), u.EscapedPath()
		}
		sum1, escaped1 := of(m1, route1, path1, query1, body1)
		sum2, escaped2 := of(m2, route2, path2, query2, body2)
		same := m1 == m2 && route1 == route2 && escaped1 == escaped2 && query1 == query2 && bytes.Equal(body1, body2)
		if same != (sum1 == sum2) {
			t.Errorf("equal requests: %v, equal fingerprints: %v", same, sum1 == sum2)
		}
	})
}

// FuzzDecode gives it what a store could return: it is refused, or is what encode makes of the answer.
func FuzzDecode(f *testing.F) {
	full := &answer{status: 201, header: http.Header{"Content-Type": {"text/plain"}, "Vary": {"Accept", ""}}, body: []byte("paid\x00")}
	f.Add(full.encode())
	f.Add((&answer{status: 204}).encode())
	f.Add([]byte(nil))
	f.Add([]byte("\x01"))
	f.Add([]byte("\x01\xc8\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add([]byte("\x01\xc8\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, stored []byte) {
		a, err := decode(stored)
		if err != nil {
			return
		}
		if a.status < 200 || a.status > 999 || a.header["Set-Cookie"] != nil || !bytes.Equal(a.encode(), stored) {
			t.Errorf("%q is taken for %+v", stored, a)
		}
		a.replay(httptest.NewRecorder())
	})
}

func TestAnswerIsDecodedAsItWasEncoded(t *testing.T) {
	for _, a := range []answer{
		{status: 200, header: http.Header{}},
		{status: 999, header: http.Header{}, body: []byte("x")},
		{status: 201, header: http.Header{"Etag": {""}, "X-A": {"1", "2", "1"}, "Vary": {strings.Repeat("v", 1000)}}, body: bytes.Repeat([]byte{0, 255}, 5000)},
	} {
		got, err := decode(a.encode())
		if err != nil || got.status != a.status || !reflect.DeepEqual(got.header, a.header) || !bytes.Equal(got.body, a.body) {
			t.Errorf("got %+v, %v; want %+v", got, err, a)
		}
	}
}

func TestWhatIsNoAnswerIsRefused(t *testing.T) {
	line := func(name, value string) string {
		return string(rune(len(name))) + name + string(rune(len(value))) + value
	}
	const begin = "\x01\xc8\x01" // 200
	if _, err := decode([]byte(begin + "\x02" + line("Etag", "1") + line("Vary", "2") + "body")); err != nil {
		t.Fatal(err)
	}
	for name, stored := range map[string]string{
		"nothing":                "",
		"another version":        "\x02\xc8\x01\x00",
		"JSON":                   `{"status":200}`,
		"the version alone":      "\x01",
		"no number of lines":     begin,
		"100":                    "\x01\x64\x00",
		"1000":                   "\x01\xe8\x07\x00",
		"a status of 65 bits":    "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",
		"2^32 and 200":           "\x01\xc8\x81\x80\x80\x10\x00",
		"a status in more bytes": "\x01\xc8\x81\x00\x00",
		"more lines than bytes":  begin + "\x7f" + line("Etag", "1"),
		"a name that is cut off": begin + "\x01\x10Etag",
		"a value cut off":        begin + "\x01\x04Etag\x05v",
		"lines out of order":     begin + "\x02" + line("Vary", "1") + line("Etag", "2"),
		"a name in lower case":   begin + "\x01" + line("etag", "1"),
		"an empty name":          begin + "\x01" + line("", "1"),
		"no name of a header":    begin + "\x01" + line("E tag", "1"),
		"a cookie":               begin + "\x01" + line("Set-Cookie", "a=b"),
		"of the connection":      begin + "\x01" + line("Connection", "close"),
	} {
		if a, err := decode([]byte(stored)); err == nil {
			t.Errorf("%s is taken for %+v", name, a)
		}
	}
}

func TestInvalidStatusPanicsAsInNetHTTP(t *testing.T) {
	for _, status := range []int{-1, 0, 99, 1000} {
		said := func(w http.ResponseWriter) (v any) {
			defer func() { v = recover() }()
			w.WriteHeader(status)
			return nil
		}
		if got, want := said(Record(httptest.NewRecorder())), said(httptest.NewRecorder()); got == nil || got != want {
			t.Errorf("%d: panic %v; want %v", status, got, want)
		}
	}
}

func TestTrailersAreSentAfterTheBody(t *testing.T) {
	w := httptest.NewRecorder()
	r := Record(w)
	r.Header().Set("Trailer", "Digest")
	_, _ = r.WriteString("paid")
	r.Header().Set("Digest", "1")
	r.send()
	if got := w.Result(); got.Trailer.Get("Digest") != "1" || got.Header.Get("Digest") != "" {
		t.Errorf("headers %v, trailers %v", got.Header, got.Trailer)
	}
}
