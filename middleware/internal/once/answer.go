package once

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"

	"github.com/lockaround/lockaround/middleware/internal/rule"
)

// Settings are the options that mean the same on every HTTP surface.
type Settings struct {
	kept    func(status int) bool // nil: by default
	headers []string              // beside the default
	given   string                // one of the options; empty if none was
}

// SetKept is the option WithKept.
func (s *Settings) SetKept(kept func(status int) bool) { s.kept, s.given = kept, "WithKept" }

// AddHeaders is the option WithReplayedHeaders.
func (s *Settings) AddHeaders(names []string) error {
	s.given = "WithReplayedHeaders"
	if len(names) == 0 {
		return errors.New("WithReplayedHeaders() names no header; leave it out")
	}
	for _, name := range names {
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !rule.HeaderName(name):
			return fmt.Errorf("WithReplayedHeaders(%q): this cannot be the name of a header; use letters, digits and dashes", name)
		case never[key]:
			return fmt.Errorf("WithReplayedHeaders(%q): this header is of one client, or of one connection or answer, and never replayed; leave it out", name)
		case slices.Contains(defaultHeaders, key) || slices.Contains(s.headers, key):
			return fmt.Errorf("WithReplayedHeaders(%q): this header is replayed already; leave it out", name)
		}
		s.headers = append(s.headers, key)
	}
	return nil
}

// CheckUnused refuses the options where no answer is kept.
func (s *Settings) CheckUnused() error {
	if s.given != "" {
		return fmt.Errorf("%s has no effect, since no answer is kept; leave it out, or use Idempotent", s.given)
	}
	return nil
}

// defaultHeaders are those that say how the body is to be read, what the request came to, and who may keep the
// answer.
var defaultHeaders = []string{
	"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Content-Range",
	"Location", "Content-Location", "Etag", "Last-Modified",
	"Cache-Control", "Expires", "Vary",
}

// never has headers that cannot be kept: what identifies a client, what is of the connection, and what is made anew.
var never = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Authentication-Info": true, "Proxy-Authentication-Info": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Date": true, replayed: true,
}

// replayed is the header that a replay has.
const replayed = "Idempotent-Replayed"

// keptByDefault: those that are not kept ask for another attempt.
func keptByDefault(status int) bool {
	switch status {
	case http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < http.StatusInternalServerError
}

// keptHeaders returns those of the headers named that an answer has. How something in front encodes every answer
// is not of this one.
func keptHeaders(rec *Recorder, names []string) http.Header {
	from := rec.begun
	if from == nil {
		from = rec.header
	}
	kept := make(http.Header)
	for _, name := range names {
		vs, there := from[name]
		if there && len(vs) == 0 && name == contentType {
			vs = []string{""} // nobody is to guess it
		}
		if len(vs) > 0 && (name != "Content-Encoding" || !slices.Equal(vs, rec.encoding)) {
			kept[name] = vs
		}
	}
	return kept
}

const contentType = "Content-Type"

// answer is what is kept of an answer.
type answer struct {
	status int
	header http.Header // without empty lists
	body   []byte
}

// version is the first byte of an answer as it is stored.
const version = 1

// encode returns the answer as it is stored: the version, the status, the number of header lines, the name and the value
// of each, sorted by name, and the body. Numbers are uvarints, and texts have their length before them.
func (a *answer) encode() []byte {
	lines := 0
	for _, vs := range a.header {
		lines += len(vs)
	}
	to := make([]byte, 0, 64*(lines+1)+len(a.body))
	to = binary.AppendUvarint(append(to, version), uint64(a.status))
	to = binary.AppendUvarint(to, uint64(lines))
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		for _, v := range a.header[name] {
			for _, text := range []string{name, v} {
				to = append(binary.AppendUvarint(to, uint64(len(text))), text...)
			}
		}
	}
	return append(to, a.body...)
}

var errGarbled = errors.New("the stored answer is garbled, or of another version of this package")

// decode returns the answer that encode has made stored of, and an error for anything else.
func decode(stored []byte) (*answer, error) {
	rest, ok := bytes.CutPrefix(stored, []byte{version})
	number := func() uint64 {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			ok = false
			return 0
		}
		rest = rest[size:]
		return n
	}
	text := func() string {
		n := number()
		if n > uint64(len(rest)) {
			ok = false
			return ""
		}
		s := string(rest[:n])
		rest = rest[n:]
		return s
	}
	status := number()
	a := &answer{header: make(http.Header)}
	for lines := number(); lines > 0 && ok; lines-- {
		name := text()
		ok = ok && rule.HeaderName(name) && name == textproto.CanonicalMIMEHeaderKey(name) && !never[name]
		a.header[name] = append(a.header[name], text())
	}
	if !ok || status < 200 || status > 999 {
		return nil, errGarbled
	}
	a.status, a.body = int(status), rest
	if !bytes.Equal(a.encode(), stored) { // another order, or a number that is longer than it need be
		return nil, errGarbled
	}
	return a, nil
}

// replay answers with a.
func (a *answer) replay(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, a.header)
	if slices.Equal(a.header[contentType], []string{""}) {
		h[contentType] = nil
	}
	h.Set(replayed, "true")
	write(w, a.status, a.body)
}
