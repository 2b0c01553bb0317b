package core

import (
	"fmt"
	"reflect"

	"github.com/lockaround/lockaround/core/internal/template"
)

// Resolver finds what a placeholder of a key template stands for in a source of
// type T: a request, a message, the argument of a function.
//
// It is asked once for each placeholder, when the policy is compiled, with the text between
// the braces, without the kind that may follow a colon. An error refuses the policy; it says
// why the name cannot be used and what could. The accessor is not nil if the error is nil. A
// name with [] in it, which stands there once, is that of a value of each element of a list.
type Resolver[T any] func(name string) (Accessor[T], error)

// Accessor reads one value from src and appends it to dst as it is, unescaped.
// It may be called concurrently, and keeps neither dst nor the result.
//
// Without exactly one value it returns an error that wraps [ErrMissing],
// [ErrRepeated], [ErrInvalid], [ErrTooLarge] or [ErrTooMany]; the call then fails with
// [ErrKey] and no lock is taken. Appending nothing counts as ErrMissing: an
// empty part would put all calls without a value behind one lock.
//
// For a name with [] it appends the values of a list, by [AppendList].
type Accessor[T any] func(dst []byte, src T) ([]byte, error)

// Fields resolves placeholders to exported fields of T: {SKU}, {Warehouse.ID}. T is a
// struct or a pointer to one; embedded structs promote their fields as in Go. If T is
// itself a string, an integer or a bool, {.} is its value.
//
// A field goes by its Go name, and by its lock tag if it has one:
//
//	type deduction struct {
//		SKU   string `lock:"sku"` // {sku} and {SKU}
//		Order struct {
//			ID int `lock:"id"`
//		} `lock:"order"` // {order.id}, and {Order.ID}, {order.ID}, {Order.id}
//	}
//
// A tag is one name: letters, digits, "_" and "-", beginning with a letter. A struct
// that a placeholder goes through is refused if one of its tags is anything else,
// stands on a field that is not exported, or equals the Go name or the tag of another
// of its fields. Its fields are those that Go selects by name: its own, and promoted
// ones unless a shallower field hides them or one as deep makes them ambiguous. What
// Go does not promote has no tag there either.
//
// {Items[].SKU} goes through the elements of a slice or an array, {SKUs[]} are elements
// themselves, and {[].SKU} and {[]} those of a T that is a slice itself; see [NewGuard] for
// lists. A nil slice is an empty one.
//
// The field has the kind string, bool or an integer; named types count by
// their kind, and their String methods are not used. A nil pointer on the way
// and an empty string are [ErrMissing]; zero and false are values.
func Fields[T any]() Resolver[T] {
	return func(name string) (Accessor[T], error) { return template.Fields[T](name) }
}

// AppendList appends the values of a list of n elements to dst, for the [Accessor] of a name
// with []. value appends that of element i, as an Accessor does; it is called for 0 to n-1, in
// this order, up to the first error.
//
//	func(dst []byte, c cart) ([]byte, error) {
//		return core.AppendList(dst, len(c.Items), func(dst []byte, i int) ([]byte, error) {
//			return append(dst, c.Items[i].SKU...), nil
//		})
//	}
//
// The error is for the Accessor to return. It has the index of an element without a value. A
// list without elements is one that wraps [ErrMissing], for which Policy.AllowEmpty counts; a
// negative n is an [ErrInvalid]. A list of more than 1024 is one that wraps [ErrTooMany]: then
// value is never called.
func AppendList(dst []byte, n int, value func(dst []byte, i int) ([]byte, error)) ([]byte, error) {
	return template.AppendList(dst, n, value)
}

// FieldPath returns the fields that a placeholder of [Fields] goes through in a t, from
// the outside in, and none for {.}. The Index of each is relative to the struct that it
// is a field of, be that an element of a list. The error is that of the resolver. It is
// for surfaces that need to know more of a field than its value: how it is filled, say.
func FieldPath(t reflect.Type, name string) ([]reflect.StructField, error) {
	return template.FieldPath(t, name)
}

// NewKey compiles a key template alone, for what has to know the keys of locks that
// others take: the guard of a resource, most often. The function that it returns
// renders the very keys that a [Guard] with the same template and resolver locks. It
// is safe for concurrent use, and nil if and only if the error is not nil.
//
// A template that is empty or malformed, or has a list or a name that r does not know, is an
// [ErrPolicy]; a value that makes no key, and a key longer than MaxKeyLength, is an
// [ErrKey] of the function. Both say the template in place of a policy's name.
func NewKey[T any](text string, r Resolver[T]) (func(src T) (string, error), error) {
	switch {
	case text == "":
		return nil, &Error{Op: "compile", Kind: ErrPolicy, Detail: "the key is empty; write the template of the lock's key"}
	case r == nil:
		return nil, &Error{Op: "compile", Policy: text, Kind: ErrPolicy, Detail: nilResolver}
	}
	t, err := compileKey("Key", text, text, false, r)
	if err != nil {
		return nil, err
	}
	return func(src T) (string, error) {
		key, fault := t.Render(src)
		switch {
		case fault != nil:
			return "", badValue("render", text, fault)
		case len(key) > MaxKeyLength:
			return "", &Error{Op: "render", Policy: text, Kind: ErrKey, Detail: fmt.Sprintf("the key has %d bytes; at most %d are possible", len(key), MaxKeyLength)}
		}
		return key, nil
	}, nil
}

const nilResolver = "the resolver is nil; use core.Fields, or a core.Resolver of your own"

// compileKey compiles the template of a policy, which stands at a place in it. lists: there is
// room for the keys of a list.
func compileKey[T any](place, text, policy string, lists bool, r Resolver[T]) (*template.Template[T], error) {
	t, fault := template.Compile(place, text, MaxKeyLength, lists, func(name string) (template.Accessor[T], error) { return r(name) })
	if fault != nil {
		return nil, &Error{Op: "compile", Policy: policy, Kind: ErrPolicy, Detail: fault.Detail, Cause: fault.Cause}
	}
	return t, nil
}

// badValue is the error of a call whose values make no key.
func badValue(op, policy string, f *template.Fault) *Error {
	return &Error{Op: op, Policy: policy, Kind: ErrKey, Placeholder: f.Placeholder, Detail: f.Detail, Cause: f.Cause}
}

// Escape returns exactly what a placeholder of a key template renders for
// value, for keys that are put together by hand:
//
//	locks.Do(ctx, core.Policy{Key: "stock:" + core.Escape(sku)}, …)
//
// Bytes outside A-Z a-z 0-9 . _ ~ - become %XX, so that a value cannot hold a
// separator such as ":" or "/". If that makes more than 200 bytes, the result
// is at most the first 134 of them, without a part of a %XX, then "%~" and the
// SHA-256 of value in lower-case hexadecimal. Different values have different
// results, as far as SHA-256 has no collisions.
//
// Escape("") is "". A placeholder refuses an empty value; whoever joins keys by
// hand has to refuse it himself, or all calls without a value share one lock.
func Escape(value string) string { return template.Escape(value) }

// Nearest returns the one of known that is spelt most like name, or "" if none is
// close: for the error of a [Resolver], or of a table of rules, about a name that
// does not exist. Case and underscores do not count.
func Nearest(name string, known []string) string { return template.Nearest(name, known) }
