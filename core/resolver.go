package core

// Resolver finds what a placeholder of a key template stands for in a source of
// type T: a request, a message, the argument of a function.
//
// It is asked once for each placeholder, when the policy is compiled, with the
// text between the braces, without the kind that may follow a colon. An error refuses the policy; it says why the name
// cannot be used and what could. The accessor is not nil if the error is nil.
type Resolver[T any] func(name string) (Accessor[T], error)

// Accessor reads one value from src and appends it to dst as it is, unescaped.
// It may be called concurrently, and keeps neither dst nor the result.
//
// Without exactly one value it returns an error that wraps [ErrMissing],
// [ErrRepeated], [ErrInvalid] or [ErrTooLarge]; the call then fails with
// [ErrKey] and no lock is taken. Appending nothing counts as ErrMissing: an
// empty part would put all calls without a value behind one lock.
type Accessor[T any] func(dst []byte, src T) ([]byte, error)
