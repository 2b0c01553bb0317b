package core

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// part is a stretch of literal text and the placeholder that follows it. The
// last part of a template has no placeholder and perhaps no text.
type part struct {
	literal string
	name    string // of the placeholder; empty in the last part
	column  int    // of the placeholder's brace, in characters from 1
}

// parseTemplate splits a key template into its parts, or says what is wrong
// with it, where, and what would be right.
//
// Two placeholders need a byte between them that no rendered value can hold.
// That makes the rendering reversible: from the left, each value ends at the
// first such byte.
func parseTemplate(text string) ([]part, error) {
	var parts []part
	for rest := text; ; {
		at := len(text) - len(rest)
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			return append(parts, part{literal: rest}), nil
		}
		column := columnOf(text, at+open)
		if rest[open] == '}' {
			return nil, fmt.Errorf("column %d: '}' without a '{' before it; a placeholder is written {name}, and a brace cannot be part of a key", column)
		}
		name := rest[open+1:]
		end := strings.IndexAny(name, "{}")
		switch {
		case end < 0:
			return nil, fmt.Errorf("column %d: '{' is never closed; a placeholder is written {name}", column)
		case name[end] == '{':
			return nil, fmt.Errorf("column %d: '{' inside the placeholder that begins at column %d; placeholders do not nest, close the first with '}'",
				columnOf(text, at+open+1+end), column)
		case end == 0:
			return nil, fmt.Errorf("column %d: {} names nothing; write the name of a value between the braces", column)
		}
		name = name[:end]
		if i := strings.IndexFunc(name, isBlank); i >= 0 {
			return nil, fmt.Errorf("column %d: white space in a placeholder's name; write it without, as in {name}", columnOf(text, at+open+1+i))
		}
		literal := rest[:open]
		if len(parts) > 0 && !holdsSeparator(literal) {
			return nil, fmt.Errorf("column %d: nothing separates {%s} from {%s}, so that different values could give the same key; put a character between them that no value can hold, such as ':' or '/' (letters, digits and . _ ~ - %% can be part of a value)",
				column, name, parts[len(parts)-1].name)
		}
		parts = append(parts, part{literal: literal, name: name, column: column})
		rest = rest[open+1+end+1:]
	}
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

// template is a key template whose placeholders are bound to values of a T.
type template[T any] struct {
	parts     []part
	accessors []Accessor[T] // of all parts but the last
}

// compileTemplate parses text and resolves its placeholders. Its errors have no
// Policy.
func compileTemplate[T any](text string, r Resolver[T]) (*template[T], *Error) {
	refuse := func(cause error, format string, a ...any) (*template[T], *Error) {
		return nil, &Error{Op: "compile", Kind: ErrPolicy, Detail: fmt.Sprintf(format, a...), Cause: cause}
	}
	parts, err := parseTemplate(text)
	if err != nil {
		return refuse(nil, "Key, %v", err)
	}
	t := &template[T]{parts: parts, accessors: make([]Accessor[T], len(parts)-1)}
	shortest := len(parts) - 1
	for i, p := range parts {
		shortest += len(p.literal)
		if i == len(t.accessors) {
			break
		}
		if t.accessors[i], err = r(p.name); err != nil {
			return refuse(err, "Key, column %d: {%s}: %v", p.column, p.name, err)
		}
		if t.accessors[i] == nil {
			return refuse(nil, "Key, column %d: {%s}: the resolver returned neither an accessor nor an error; it must return one of them", p.column, p.name)
		}
	}
	if shortest > MaxKeyLength {
		return refuse(nil, "Key gives keys of %d bytes or more; at most %d are possible", shortest, MaxKeyLength)
	}
	return t, nil
}

// render returns the key for src, whose length the engine checks. Its errors
// have no Policy. It allocates the key and nothing else, as far as the accessors
// allow.
func (t *template[T]) render(src T) (string, *Error) {
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
			return "", &Error{Op: "acquire", Kind: ErrKey, Placeholder: p.name, Detail: valueFault(err), Cause: err}
		}
		key = append(key, p.literal...)
		key = appendEscaped(key, value)
	}
	key = append(key, t.parts[len(t.accessors)].literal...)
	rendered := string(key)
	if cap(key) <= 4*MaxKeyLength {
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
	for _, known := range []error{ErrMissing, ErrRepeated, ErrTooLarge, ErrInvalid} {
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
