package rule

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/lockaround/lockaround/middleware/internal/body"
)

// Settings are the options that mean the same on every HTTP surface, whose
// functions are called with a C. Each is an error if it is given twice, and if
// it can have no effect.
type Settings[C any] struct {
	Filter    func(C) bool // nil: every request is locked
	BodyLimit int64        // in bytes
	NoBuffer  bool
	BodyFault error // why a key cannot have values of the body; nil if it can

	values map[string]func(C) (string, error)
	given  map[string]bool
}

// Once fails the second time that it is called for an option.
func (s *Settings[C]) Once(option string) error {
	if s.given[option] {
		return fmt.Errorf("%s is given twice; give it once", option)
	}
	if s.given == nil {
		s.given = make(map[string]bool)
	}
	s.given[option] = true
	return nil
}

// SetFilter is the option WithFilter.
func (s *Settings[C]) SetFilter(needsLock func(C) bool) error {
	s.Filter = needsLock
	return s.Once("WithFilter")
}

// AddValue is the option WithValue.
func (s *Settings[C]) AddValue(name string, value func(C) (string, error)) error {
	if err := s.Once("WithValue(" + name + ")"); err != nil {
		return err
	}
	prefix, _, _ := strings.Cut(name, ".")
	switch {
	case strings.Contains(name, listMark):
		return fmt.Errorf("WithValue(%q): a name with [] is that of a list, and the function returns one value; use a name without", name)
	case name == "" || strings.ContainsAny(name, "{}:"):
		return fmt.Errorf("WithValue(%q): the name is empty, or has braces or a colon; give it the text between the key's braces, without a kind", name)
	case value == nil:
		return fmt.Errorf("WithValue(%q): the function is nil; give it one that returns the value", name)
	case builtin(prefix):
		return fmt.Errorf("WithValue(%q): %s is built in (%s); use another name", name, prefix, builtinUsage)
	}
	if s.values == nil {
		s.values = make(map[string]func(C) (string, error))
	}
	s.values[name] = value
	return nil
}

// HasValue reports whether name was given with WithValue.
func (s *Settings[C]) HasValue(name string) bool { return s.values[name] != nil }

// SetBodyLimit is the option WithBodyLimit.
func (s *Settings[C]) SetBodyLimit(n int64) error {
	if err := s.Once("WithBodyLimit"); err != nil {
		return err
	}
	if n < 1 || n == math.MaxInt64 {
		return fmt.Errorf("WithBodyLimit(%d): use a number of bytes from 1 to 2^63-2", n)
	}
	s.BodyLimit = n
	return nil
}

// SetNoBuffer is the option WithoutBodyBuffer.
func (s *Settings[C]) SetNoBuffer() error {
	s.NoBuffer = true
	return s.Once("WithoutBodyBuffer")
}

// Check refuses options that exclude each other.
func (s *Settings[C]) Check() error {
	if s.NoBuffer && s.given["WithBodyLimit"] {
		return errors.New("WithBodyLimit has no effect with WithoutBodyBuffer; give one of them")
	}
	return nil
}

// CheckUse refuses options that the keys make useless or impossible, of which
// used are all placeholders. readsBody: some are of the body.
func (s *Settings[C]) CheckUse(used map[string]bool, readsBody bool) error {
	var unused []string
	for name := range s.values {
		if !used[name] {
			unused = append(unused, "{"+name+"}")
		}
	}
	sort.Strings(unused)
	if len(unused) > 0 {
		return fmt.Errorf("WithValue is given for %s, which the key does not use; put it into the key or leave the option out",
			strings.Join(unused, ", "))
	}
	return s.CheckBody(readsBody)
}

// CheckBody refuses a key that has values of the body where it cannot, as with
// WithoutBodyBuffer.
func (s *Settings[C]) CheckBody(needed bool) error {
	if needed && s.BodyFault != nil {
		return s.BodyFault
	}
	if s.NoBuffer && needed {
		return errors.New("WithoutBodyBuffer is given, but the key has a {body.…} placeholder, for which the body is read; leave one of them out")
	}
	return nil
}

// CheckKeyUse is [Settings.CheckUse] where nothing is waited for, so that a body is
// read for the sake of the key only.
func (s *Settings[C]) CheckKeyUse(used map[string]bool, readsBody bool) error {
	switch {
	case s.NoBuffer:
		return errors.New("WithoutBodyBuffer has no effect, since a body is read only for a {body.…} placeholder; leave it out")
	case s.given["WithBodyLimit"] && !readsBody:
		return errors.New("WithBodyLimit has no effect, since the key has no {body.…} placeholder for which a body is read; leave it out")
	}
	return s.CheckUse(used, readsBody)
}

// Plan says which bodies are read ahead for a key. needed: it has values of the
// body.
func (s *Settings[C]) Plan(needed bool) body.Plan {
	return body.Plan{Limit: s.BodyLimit, Needed: needed, Never: s.NoBuffer}
}
