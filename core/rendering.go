package core

import "fmt"

// NewKey compiles a key template alone, for what has to know the keys of locks that
// others take: the guard of a resource, most often. The function that it returns
// renders the very keys that a [Guard] with the same template and resolver locks. It
// is safe for concurrent use, and nil if and only if the error is not nil.
//
// A template that is empty or malformed, or has a name that r does not know, is an
// [ErrPolicy]; a value that makes no key, and a key longer than MaxKeyLength, is an
// [ErrKey] of the function. Both say the template in place of a policy's name.
func NewKey[T any](text string, r Resolver[T]) (func(src T) (string, error), error) {
	switch {
	case text == "":
		return nil, &Error{Op: "compile", Kind: ErrPolicy, Detail: "the key is empty; write the template of the lock's key"}
	case r == nil:
		return nil, &Error{Op: "compile", Policy: text, Kind: ErrPolicy, Detail: "the resolver is nil; use core.Fields, or a core.Resolver of your own"}
	}
	t, fault := compileTemplate(text, r)
	if fault != nil {
		fault.Policy = text
		return nil, fault
	}
	return func(src T) (string, error) {
		key, fault := t.render(src)
		if fault == nil && len(key) > MaxKeyLength {
			fault = &Error{Kind: ErrKey, Detail: fmt.Sprintf("the key has %d bytes; at most %d are possible", len(key), MaxKeyLength)}
		}
		if fault != nil {
			fault.Op, fault.Policy = "render", text
			return "", fault
		}
		return key, nil
	}, nil
}
