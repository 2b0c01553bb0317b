package body

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/lockaround/lockaround/core"
)

// maxJSONDepth is how deep objects and arrays may be nested.
const maxJSONDepth = 128

// checkJSON reports whether doc is one JSON value without the liberties that
// decoders take differently with the whole text.
func checkJSON(doc []byte) error {
	if !utf8.Valid(doc) || !json.Valid(doc) {
		return &Fault{core.ErrInvalid, "the body is not one JSON value in UTF-8"}
	}
	return nil
}

// jsonValue returns the string, boolean or integer that path leads to, through
// objects only. doc must have passed checkJSON: the scanner relies on it for
// every bound it does not check.
func jsonValue(doc []byte, path []string) (string, error) {
	s := jsonScanner{doc: doc}
	raw, err := s.find(path, 1)
	if err != nil {
		return "", err
	}
	return jsonScalar(raw)
}

// jsonScalar returns the text of a string, a boolean or an integer; raw is nil if there is none.
func jsonScalar(raw []byte) (string, error) {
	if raw == nil {
		return "", core.ErrMissing
	}
	switch raw[0] {
	case '"':
		v, err := unquoteJSON(raw)
		if err == nil && v == "" {
			err = core.ErrMissing
		}
		return v, err
	case 't', 'f':
		return string(raw), nil
	case 'n':
		return "", core.ErrMissing
	case '{', '[':
		return "", &Fault{core.ErrInvalid, "it is an object or an array"}
	}
	if bytes.ContainsAny(raw, ".eE") || string(raw) == "-0" {
		return "", &Fault{core.ErrInvalid, "it is a number but not a plain integer"}
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err != nil {
		if _, err := strconv.ParseUint(string(raw), 10, 64); err != nil {
			return "", &Fault{core.ErrInvalid, "it is an integer of more than 64 bits"}
		}
	}
	return string(raw), nil
}

// appendJSONList appends what rest leads to in each element of the array that list leads to, by
// core.AppendList: the elements themselves if it is empty. doc must have passed checkJSON.
func appendJSONList(dst, doc []byte, list, rest []string) ([]byte, error) {
	s := jsonScanner{doc: doc}
	raw, err := s.find(list, 1)
	switch {
	case err != nil:
		return dst, err
	case raw == nil || raw[0] == 'n':
		return dst, core.ErrMissing
	case raw[0] != '[':
		return dst, &Fault{core.ErrInvalid, "it is not an array"}
	}
	depth := len(list) + 1 // of what is inside the array
	n := 0
	for s = (jsonScanner{doc: raw, pos: 1}); s.more(); n++ {
		if err := s.skip(depth); err != nil {
			return dst, err
		}
	}
	s = jsonScanner{doc: raw, pos: 1}
	return core.AppendList(dst, n, func(dst []byte, _ int) ([]byte, error) {
		s.more()
		start := s.pos
		if len(rest) > 0 && s.doc[start] != 'n' {
			value, err := s.find(rest, depth+1)
			if err != nil {
				return dst, err
			}
			return appendJSONScalar(dst, value)
		}
		if err := s.skip(depth); err != nil {
			return dst, err
		}
		return appendJSONScalar(dst, s.doc[start:s.pos])
	})
}

func appendJSONScalar(dst, raw []byte) ([]byte, error) {
	value, err := jsonScalar(raw)
	return append(dst, value...), err
}

// jsonScanner walks once through a valid JSON text.
type jsonScanner struct {
	doc []byte
	pos int
}

// find passes over one value and returns the part of it that path leads to, or
// nil. It looks at every name of the objects on the way, to the last.
func (s *jsonScanner) find(path []string, depth int) ([]byte, error) {
	s.space()
	if s.doc[s.pos] != '{' {
		return nil, &Fault{core.ErrInvalid, "what should hold it is not an object"}
	}
	s.pos++
	var found []byte
	seen := false
	for s.more() {
		name, err := unquoteJSON(s.text())
		if err != nil {
			return nil, err
		}
		s.colon()
		here := sameName(name, path[0])
		switch {
		case here && name != path[0]:
			return nil, &Fault{core.ErrInvalid, "a name on the way to it differs from the key's by case only"}
		case here && seen:
			return nil, &Fault{core.ErrRepeated, "a name on the way to it comes twice"}
		case here && len(path) > 1:
			seen = true
			found, err = s.find(path[1:], depth+1)
		default:
			start := s.pos
			err = s.skip(depth)
			if here {
				seen = true
				found = s.doc[start:s.pos]
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// space passes over white space.
func (s *jsonScanner) space() {
	for s.pos < len(s.doc) {
		switch s.doc[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// more passes over a comma, or what ends the object or the array, and the space
// around it. It reports whether another name or element follows.
func (s *jsonScanner) more() bool {
	s.space()
	if s.doc[s.pos] == ',' {
		s.pos++
		s.space()
	}
	if c := s.doc[s.pos]; c == '}' || c == ']' {
		s.pos++
		return false
	}
	return true
}

// colon passes over a colon and the space around it.
func (s *jsonScanner) colon() {
	s.space()
	s.pos++
	s.space()
}

// text passes over a string and returns it with its quotes.
func (s *jsonScanner) text() []byte {
	start := s.pos
	for s.pos++; s.doc[s.pos] != '"'; s.pos++ {
		if s.doc[s.pos] == '\\' {
			s.pos++
		}
	}
	s.pos++
	return s.doc[start:s.pos]
}

// skip passes over a value that stands inside depth objects.
func (s *jsonScanner) skip(depth int) error {
	for outside := depth; ; {
		switch s.doc[s.pos] {
		case '{', '[':
			if depth++; depth > maxJSONDepth {
				return &Fault{core.ErrInvalid, "the body is nested more than " + strconv.Itoa(maxJSONDepth) + " deep"}
			}
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case '"':
			s.text()
		case ',', ':', ' ', '\t', '\n', '\r':
			s.pos++
		default: // a number, true, false or null
			n := bytes.IndexAny(s.doc[s.pos:], ",]} \t\n\r")
			s.pos += n
		}
		if depth == outside {
			return nil
		}
	}
}

// sameName reports whether some decoder may take one name for the other.
// encoding/json folds case as EqualFold does; others compare what ToLower makes
// of both, to which İ is i.
func sameName(a, b string) bool {
	if a == b || strings.EqualFold(a, b) {
		return true
	}
	if ascii(a) && ascii(b) {
		return false
	}
	alike := func(fold func(string) string) bool { return fold(a) == fold(b) }
	return alike(strings.ToLower) || alike(strings.ToUpper)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// unquoteJSON returns the text of a valid JSON string. Half a surrogate pair,
// of which decoders make different things, is refused.
func unquoteJSON(quoted []byte) (string, error) {
	in := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return string(in), nil
	}
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		i++
		switch in[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hexRune(in[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				var low rune
				if bytes.HasPrefix(in[i+1:], []byte(`\u`)) {
					low = hexRune(in[i+3:])
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return "", &Fault{core.ErrInvalid, "a string on the way to it has half a surrogate pair"}
				}
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default: // a quote, a slash or a backslash
			out = append(out, in[i])
		}
	}
	return string(out), nil
}

// hexRune reads the four digits of a \u escape.
func hexRune(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 16) // checkJSON has seen four digits
	return rune(n)
}
