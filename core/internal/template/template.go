package template

import (
	"errors"
	"fmt"
	"sync"
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
