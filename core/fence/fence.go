// Package fence refuses the late writes of holders that were paused past their lease.
//
// A lock alone cannot: a process that stops for longer than its TTL, with a write on
// its way, wakes up and writes beside the next holder. Every holder has a fencing
// token, a number larger than that of any holder before it. A guard keeps the largest
// token that has written to a resource, in the same place as the resource and changed
// in the same step, and refuses a smaller one.
//
// The idea is from M. Kleppmann, "How to do distributed locking" (2016), and before
// that from the sequencers of the Chubby lock service (M. Burrows, 2006).
package fence

import (
	"context"
	"errors"
)

var (
	// ErrStale: a larger token has written to the resource: the writer's lease is
	// over, and another one has had the lock since.
	ErrStale = errors.New("fencing token is stale")
	// ErrMissing: there is no token.
	ErrMissing = errors.New("fencing token is missing")
	// ErrOtherKey: the token is that of another key.
	ErrOtherKey = errors.New("fencing token is of another key")
	// ErrMalformed: what came as a token is none.
	ErrMalformed = errors.New("fencing token is malformed")
)

// Guard admits a token if no larger one was admitted for its key before, and
// remembers it. Implementations are safe for concurrent use.
type Guard interface {
	// Admit returns nil, or an error around ErrStale, or what kept the guard from
	// deciding: then the token counts as refused.
	Admit(ctx context.Context, t Token) error
}
