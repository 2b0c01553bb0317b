package template

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Why there is no value for a placeholder.
var (
	ErrMissing  = errors.New("value is missing or empty")
	ErrRepeated = errors.New("value is repeated")
	ErrInvalid  = errors.New("value cannot be read")
	ErrTooLarge = errors.New("value's source is too large")
	ErrTooMany  = errors.New("more values than a lock takes")
)

type (
	// Accessor appends one value of src to dst, as core.Accessor says.
	Accessor[T any] = func(dst []byte, src T) ([]byte, error)

	// Resolver finds the accessor of a placeholder, as core.Resolver says.
	Resolver[T any] = func(name string) (Accessor[T], error)
)

// Fault says what is wrong with a template, or with a value for it.
type Fault struct {
	Placeholder string // whose value is at fault; empty if the template is
	Detail      string // what is wrong and what would be right, without values
	Cause       error  // of the resolver or the accessor; it may quote values
}

func (f *Fault) Error() string { return f.Detail }

func (f *Fault) Unwrap() error { return f.Cause }

// Template is a key template whose placeholders are bound to values of a T. It is safe for
// concurrent use.
type Template[T any] struct {
	parts     []part
	accessors []Accessor[T] // of all parts but the last
	longest   int
	list      bool // it goes through one, so that RenderAll makes its keys
}

// Compile parses text and resolves its placeholders. A template whose keys would all be longer
// than longest bytes is refused, and so is one with a list unless lists says that there is room
// for its keys. A fault begins with the place of the template, such as "Key".
func Compile[T any](place, text string, longest int, lists bool, resolve Resolver[T]) (*Template[T], *Fault) {
	refuse := func(cause error, format string, a ...any) (*Template[T], *Fault) {
		return nil, &Fault{Detail: place + fmt.Sprintf(format, a...), Cause: cause}
	}
	parts, err := parse(text)
	if err != nil {
		return refuse(nil, ", %v", err)
	}
	t := &Template[T]{parts: parts, accessors: make([]Accessor[T], len(parts)-1), longest: longest}
	shortest := len(parts) - 1
	for i, p := range parts {
		shortest += len(p.literal)
		if i == len(t.accessors) {
			break
		}
		if p.ofList && !lists {
			return refuse(nil, ", column %d: {%s} gives a key for each element of a list, and there is room for one key here; in a policy, put the template into Keys", p.column, p.name)
		}
		t.list = t.list || p.ofList
		if t.accessors[i], err = resolve(p.name); err != nil {
			return refuse(err, ", column %d: {%s}: %v", p.column, p.name, err)
		}
		if t.accessors[i] == nil {
			return refuse(nil, ", column %d: {%s}: the resolver returned neither an accessor nor an error; it must return one of them", p.column, p.name)
		}
		if p.kind != "" && !p.ofList { // the elements of a list are spelt one by one
			t.accessors[i] = ofKind(spellers[p.kind], t.accessors[i])
		}
	}
	if shortest > longest {
		return refuse(nil, " gives keys of %d bytes or more; at most %d are possible", shortest, longest)
	}
	return t, nil
}

// Prefix puts literal text before every key. It is called before the first Render.
func (t *Template[T]) Prefix(text string) { t.parts[0].literal = text + t.parts[0].literal }

// HasList reports whether RenderAll makes the template's keys, and not Render.
func (t *Template[T]) HasList() bool { return t.list }

// Render returns the key for src, whose length the caller checks. It allocates the key and
// nothing else, as far as the accessors allow.
func (t *Template[T]) Render(src T) (string, *Fault) {
	if len(t.accessors) == 0 {
		return t.parts[0].literal, nil
	}
	s := scratches.Get().(*scratch)
	key := s.key[:0]
	for i, accessor := range t.accessors {
		p := &t.parts[i]
		value, err := accessor(s.value[:0], src)
		if err == nil && len(value) == 0 {
			err = ErrMissing
		}
		if err != nil {
			return "", t.fault(i, err)
		}
		key = append(key, p.literal...)
		key = appendEscaped(key, value)
	}
	key = append(key, t.parts[len(t.accessors)].literal...)
	rendered := string(key)
	if cap(key) <= 4*t.longest {
		s.key = key
	}
	// s.value stays what it was: the slice that an accessor returned might be
	// its caller's.
	scratches.Put(s)
	return rendered, nil
}

// valueFault says why there is no value, without what the accessor's own error
// may quote of it.
func valueFault(err error) string {
	for _, known := range []error{ErrEmpty, errTooLong, ErrTooMany, ErrMissing, ErrRepeated, ErrTooLarge, ErrInvalid} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return ErrInvalid.Error()
}

// scratch is where a key is put together.
type scratch struct {
	key, value []byte
}

var scratches = sync.Pool{New: func() any {
	return &scratch{key: make([]byte, 0, 256), value: make([]byte, 0, 1<<10)}
}}

// part is a stretch of literal text and the placeholder that follows it. The
// last part of a template has no placeholder and perhaps no text.
type part struct {
	literal string
	name    string // of the placeholder; empty in the last part
	kind    string // of the placeholder; empty if it has none
	list    string // of the placeholder, as it is written before its mark
	ofList  bool   // it has one; the source itself may be the list
	column  int    // of the placeholder's brace, in characters from 1
}

// parse splits a key template into its parts, or says what is wrong
// with it, where, and what would be right.
//
// Two placeholders need a byte between them that no rendered value can hold.
// That makes the rendering reversible: from the left, each value ends at the
// first such byte.
func parse(text string) ([]part, error) {
	var parts []part
	for rest := text; ; {
		at := len(text) - len(rest)
		open := strings.IndexAny(rest, "{}")
		literal := rest
		if open >= 0 {
			literal = rest[:open]
		}
		if i, verb := printfVerb(literal); verb != "" {
			return nil, fmt.Errorf("column %d: %s would be a part of every key, and no value takes its place; a placeholder is written {name}", columnOf(text, at+i), verb)
		}
		if open < 0 {
			return append(parts, part{literal: rest}), nil
		}
		column := columnOf(text, at+open)
		if mark := strings.TrimRight(literal, "$#"); rest[open] == '{' && mark != literal {
			return nil, fmt.Errorf("column %d: %s before '{' would be a part of every key; a placeholder is written {name}, with nothing before the brace", column-1, literal[len(literal)-1:])
		}
		if rest[open] == '}' {
			return nil, fmt.Errorf("column %d: '}' without a '{' before it; a placeholder is written {name}, and a brace cannot be part of a key", column)
		}
		name := rest[open+1:]
		end := strings.IndexAny(name, "{}")
		switch {
		case end < 0:
			return nil, fmt.Errorf("column %d: '{' is never closed; a placeholder is written {name}", column)
		case end == 0 && name[end] == '{':
			return nil, fmt.Errorf("column %d: '{{' is of another template language; a placeholder is written {name}, with one brace and without a dot before the name", column)
		case name[end] == '{':
			return nil, fmt.Errorf("column %d: '{' inside the placeholder that begins at column %d; placeholders do not nest, close the first with '}'",
				columnOf(text, at+open+1+end), column)
		case end == 0:
			return nil, fmt.Errorf("column %d: {} names nothing; write the name of a value between the braces", column)
		}
		within := name[:end]
		if i := strings.IndexFunc(within, isBlank); i >= 0 {
			return nil, fmt.Errorf("column %d: white space in a placeholder's name; write it without, as in {name}", columnOf(text, at+open+1+i))
		}
		name, called, err := cutKind(within)
		if err != nil {
			return nil, fmt.Errorf("column %d: %w", column, err)
		}
		if name == "" {
			return nil, fmt.Errorf("column %d: {%s} names nothing; write the name of a value before the colon", column, within)
		}
		next := part{literal: literal, name: name, kind: called, column: column}
		if err := checkList(name); err != nil {
			return nil, fmt.Errorf("column %d: %w", column, err)
		}
		if next.list, _, next.ofList = strings.Cut(name, listMark); next.ofList {
			for _, p := range parts {
				if p.ofList && p.list != next.list {
					return nil, fmt.Errorf("column %d: {%s} is of another list than {%s}, and a template goes through one; give each an element of Keys", column, name, p.name)
				}
			}
		}
		if len(parts) > 0 && !holdsSeparator(literal) {
			return nil, fmt.Errorf("column %d: nothing separates {%s} from {%s}, so that different values could give the same key; put a character between them that no value can hold, such as ':' or '/' (letters, digits and . _ ~ - %% can be part of a value)",
				column, name, parts[len(parts)-1].name)
		}
		parts = append(parts, next)
		rest = rest[open+1+end+1:]
	}
}

// printfVerb finds what fmt would replace by a value, such as %s, and returns "" if there
// is none. A letter or digit behind it says that it is something else.
func printfVerb(literal string) (at int, verb string) {
	for i := 0; i < len(literal); i++ {
		if literal[i] != '%' {
			continue
		}
		end := i + 1
		for end < len(literal) && strings.IndexByte("+#", literal[end]) >= 0 {
			end++
		}
		if end < len(literal) && strings.IndexByte("sdvqxXt", literal[end]) >= 0 && (end+1 == len(literal) || !isWord(literal[end+1])) {
			return i, literal[i : end+1]
		}
	}
	return 0, ""
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

func columnOf(text string, at int) int { return utf8.RuneCountInString(text[:at]) + 1 }

func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func holdsSeparator(literal string) bool {
	for i := range len(literal) {
		if separates(literal[i]) {
			return true
		}
	}
	return false
}

const (
	// maxPart is the largest length in bytes of one rendered value.
	maxPart = 200

	// hashMark stands before the hash of a long value. An encoded value has
	// two hexadecimal digits after every percent sign, so the mark occurs in
	// none, and a long value never renders like a short one.
	hashMark = "%~"

	// keptOfLong is how much of a long value's encoding stays readable.
	keptOfLong = maxPart - len(hashMark) - 2*sha256.Size
)

// Escape returns what a placeholder renders for value, as core.Escape says.
func Escape(value string) string {
	if len(value) <= maxPart && isPlain(value) {
		return value
	}
	var buf [maxPart + len("%XX")]byte
	return string(appendEscaped(buf[:0], value))
}

// appendEscaped appends what [Escape] returns: at most maxPart bytes.
func appendEscaped[S string | []byte](dst []byte, value S) []byte {
	const digits = "0123456789ABCDEF"
	start, kept := len(dst), len(dst)
	for i := range len(value) {
		c := value[i]
		if plain[c] {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&0xf])
		}
		switch n := len(dst) - start; {
		case n <= keptOfLong:
			kept = len(dst)
		case n > maxPart:
			sum := sha256.Sum256([]byte(value))
			dst = append(dst[:kept], hashMark...)
			return hex.AppendEncode(dst, sum[:])
		}
	}
	return dst
}

func isPlain(value string) bool {
	for i := range len(value) {
		if !plain[value[i]] {
			return false
		}
	}
	return true
}

// plain holds the bytes that a rendered value keeps as they are: the
// unreserved characters of RFC 3986.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '.' || c == '_' || c == '~' || c == '-'
	}
	return t
}()

// separates reports whether c can occur in no rendered value.
func separates(c byte) bool { return !plain[c] && c != '%' }
