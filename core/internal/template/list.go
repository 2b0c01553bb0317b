package template

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// listMark stands behind the name of a list: {Items[].SKU} is a value of each of its elements.
const listMark = "[]"

// maxElements is how many elements a list may have, equal ones included. They are counted
// before any is read: a client chooses how many there are.
const maxElements = 1024

// Why there are no values for a placeholder with a list.
var (
	ErrEmpty   error = &listError{"list is empty; set Policy.AllowEmpty if such a call needs no lock", ErrMissing}
	errTooLong error = &listError{fmt.Sprintf("list has more than %d elements; use a shorter one, of at most 64 different values", maxElements), ErrTooMany}
)

type listError struct {
	text string
	kind error
}

func (e *listError) Error() string { return e.text }
func (e *listError) Unwrap() error { return e.kind }

// elementError says which element of a list has no value.
type elementError struct {
	index int
	err   error
}

func (e *elementError) Error() string { return fmt.Sprintf("element %d: %v", e.index, e.err) }
func (e *elementError) Unwrap() error { return e.err }

// checkList says what is wrong with the marks of a placeholder's name.
func checkList(name string) error {
	list, rest, ok := strings.Cut(name, listMark)
	switch {
	case !ok:
		return nil
	case strings.Contains(rest, listMark):
		return fmt.Errorf("{%s} goes through two lists, and a template goes through one; pass all that is to be locked in one list", name)
	case strings.HasSuffix(list, "."):
		return fmt.Errorf("{%s} has no name before []; write that of a list, as in {Items[].SKU}", name)
	case rest != "" && (rest[0] != '.' || rest == "."):
		return fmt.Errorf("{%s}: what follows [] is a dot and a name, or nothing; write {%s[].name} or {%[2]s[]}", name, list)
	}
	return nil
}

// HasList reports whether a placeholder of a template has a list, as far as the template is
// well-formed.
func HasList(text string) bool {
	for {
		_, rest, open := strings.Cut(text, "{")
		within, after, closed := strings.Cut(rest, "}")
		if !open || !closed {
			return false
		}
		if strings.Contains(within, listMark) {
			return true
		}
		text = after
	}
}

// lengthSize is how many bytes say how long an element is.
const lengthSize = 4

// AppendList appends the values of a list to dst, as core.AppendList says.
func AppendList(dst []byte, n int, value func(dst []byte, i int) ([]byte, error)) ([]byte, error) {
	switch {
	case n < 0:
		return dst, ErrInvalid
	case n == 0:
		return dst, ErrEmpty
	case n > maxElements:
		return dst, errTooLong
	}
	scratch := make([]byte, 0, 64) // what value returns might be its own, and is not kept
	for i := range n {
		v, err := value(scratch, i)
		if err == nil && len(v) == 0 {
			err = ErrMissing
		}
		if err != nil {
			return dst, &elementError{i, err}
		}
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(v))), v...)
	}
	return dst, nil
}

// cutElement takes the first value off what AppendList has made.
func cutElement(list []byte) (value, rest []byte, ok bool) {
	if len(list) < lengthSize {
		return nil, nil, false
	}
	n, list := binary.BigEndian.Uint32(list), list[lengthSize:]
	if n == 0 || uint64(n) > uint64(len(list)) {
		return nil, nil, false
	}
	return list[:n], list[n:], true
}

// atElement is the name of a placeholder for one element: Items[3].SKU.
func atElement(name string, i int) string {
	return strings.Replace(name, listMark, "["+strconv.Itoa(i)+"]", 1)
}

// RenderAll calls yield with the key of each element of the template's list, in the order of the
// list, until it returns false. The caller checks their lengths. All values were read before.
func (t *Template[T]) RenderAll(src T, yield func(key string) bool) *Fault {
	values, n := make([][][]byte, len(t.accessors)), -1 // of a list one for each element, else one
	for i, accessor := range t.accessors {
		value, err := accessor(nil, src)
		if err == nil && len(value) == 0 {
			err = ErrMissing
		}
		if values[i] = [][]byte{value}; err == nil && t.parts[i].ofList {
			values[i], err = t.elements(i, value)
			if err == nil && n >= 0 && n != len(values[i]) {
				err = ErrInvalid // it has changed in between
			}
			n = len(values[i])
		}
		if err != nil {
			return t.fault(i, err)
		}
	}
	for element := range n {
		var key []byte
		for i, value := range values {
			p := &t.parts[i]
			key = append(key, p.literal...)
			if p.ofList {
				key = appendEscaped(key, value[element])
			} else {
				key = appendEscaped(key, value[0])
			}
		}
		if !yield(string(append(key, t.parts[len(values)].literal...))) {
			return nil
		}
	}
	return nil
}

// elements takes apart what the accessor of a list has appended.
func (t *Template[T]) elements(i int, list []byte) ([][]byte, error) {
	var all [][]byte
	for len(list) > 0 {
		value, rest, ok := cutElement(list)
		if !ok {
			return nil, ErrInvalid // AppendList has not made it
		}
		if spell := spellers[t.parts[i].kind]; spell != nil {
			if value, ok = spell(nil, value); !ok {
				return nil, &elementError{len(all), ErrInvalid}
			}
		}
		all, list = append(all, value), rest
	}
	return all, nil
}

// fault says why placeholder i has no value.
func (t *Template[T]) fault(i int, err error) *Fault {
	f := &Fault{Placeholder: t.parts[i].name, Detail: valueFault(err), Cause: err}
	if e, ok := errors.AsType[*elementError](err); ok {
		f.Placeholder = atElement(f.Placeholder, e.index)
	}
	return f
}
