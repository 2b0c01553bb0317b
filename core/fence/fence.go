// Package fence refuses the late writes of holders that were paused past their lease.
//
// A lock alone cannot: a process that stops for longer than its TTL, with a write on
// its way, wakes up and writes beside the next holder. Every holder has a fencing
// token, a number larger than that of any holder before it. A guard keeps the largest
// token that has come to a resource, and refuses a smaller one.
//
//	token, err := fence.For(ctx, "stock:"+core.Escape(sku)) // in the guarded call
//	err = redisfence.New(rdb).Admit(ctx, token)             // no earlier holder writes any more
//	left, err := deduct.Run(ctx, rdb, token, keys, 3).Int() // a redisfence.Script: check and write in one step
//
// [SQL] and [Column] do it in PostgreSQL and MySQL or MariaDB, [Memory] within one process.
// go run ./examples/fence shows a late write, and what a guard makes of it.
//
// # Where the guard has to be
//
// A holder that reads, decides and writes checks its token twice:
//
//   - before it reads, by [Guard.Admit]: after that no earlier holder writes any
//     more. Without it, an earlier one that wakes up between the reading and the
//     writing is admitted, and then overwritten, although it was told of its success.
//   - in the same step as the write: in its transaction, in the script that writes
//     (redisfence.Script), or under the lock that the write is done under
//     ([Memory.Do]). Without it, the process may stop between the answer and the
//     write, and write when a later holder has.
//
// Both have to come to the same number. A surface that checks the tokens of requests
// does the first. A write that reads in the same step needs the second only. The
// number belongs where the resource is: then both are lost and restored together.
//
// Tokens put holders in an order, one after the other. Those who hold a key together,
// as core.Shared or core.Semaphore, have no order among themselves, and the guard would
// refuse all of them but the last: guard what holders of an exclusive lock write.
//
// # How a token travels
//
// The code that a lock is around finds its tokens by [For] in its context. If the
// resource is behind another service, the clients of the surfaces send the tokens
// along with a call, as values of [Header], and those of the servers put them into
// the context of the handler, where For finds them as well.
//
//	          sends                reads                 reads and checks
//	net/http  httplock.SendTokens  httplock.ReadTokens   httplock.Fence
//	gin                            middleware.ReadTokens middleware.Fence
//	gRPC      interceptor.Tokens   interceptor.Tokens    interceptor.Fence
//
// # Deadlocks across services
//
// A service that holds a key and calls another one, which takes the same key, waits for itself
// until its time runs out. If the call carries the token, the second service fails with
// core.ErrDeadlock instead of waiting: at once if the holder is in its own process, otherwise
// after a tenth of a second and one question to the store. Nothing has to be set but that tokens
// are sent and read, before the lock is taken:
//
//	client := &http.Client{Transport: httplock.SendTokens(nil)}          // the first service
//	mux.Handle("POST /orders/{id}", httplock.ReadTokens(lock(handler)))  // the second one
//
// It needs the same namespace of the same store on both sides. A token of a hold that is over
// refuses nobody, with one exception: its process has handed the lease on to another caller,
// who still holds. Use core.Detach for work that the holder does not wait for, so that its
// calls carry no token. A forged token can only make its sender's own call fail. One slot of
// several, and a reader beside a reader, may become free without the holder, and are waited for.
//
// # Whom to believe
//
// A token is no secret and no proof of anything: whoever can send one to a guard can
// send the largest number there is, after which the guard refuses every true holder
// until its number is set back by hand. Accept tokens from your own services only,
// and have the edge of your network drop the header.
//
// A number can be compared only with others that the same store has issued for the
// key in the same namespace. Engines of different stores or namespaces that lock keys
// of one name need a guard, or a name, each.
//
// The idea is from M. Kleppmann, "How to do distributed locking" (2016), and before
// that from the sequencers of the Chubby lock service (M. Burrows, 2006).
package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
)

// Why a token is refused, for errors.Is.
var (
	// ErrStale: a larger token has come to the resource: the writer's lease is over,
	// and another one has had the lock since. The same token will never be admitted
	// again; what is to be done takes the lock anew and begins with reading.
	ErrStale = errors.New("fencing token is stale")
	// ErrMissing: there is no token.
	ErrMissing = errors.New("fencing token is missing")
	// ErrOtherKey: the token is that of another key.
	ErrOtherKey = errors.New("fencing token is of another key")
	// ErrMalformed: what came as a token is none.
	ErrMalformed = errors.New("fencing token is malformed")
	// ErrUndecided: the guard could not decide, most often because its store did not
	// answer. The token counts as refused, and may be tried again.
	ErrUndecided = errors.New("fencing token could not be checked")
)

// Guard admits a token if no larger one was admitted for its key before, and
// remembers it. An equal one is admitted: a holder may write more than once, and a
// write whose reply was lost may be repeated. Implementations are safe for concurrent
// use.
type Guard interface {
	// Admit returns nil, or an error around ErrStale, or what kept the guard from
	// deciding: then the token counts as refused, although it may have been
	// remembered.
	Admit(ctx context.Context, t Token) error
}

// Check asks g to admit the token of a key: for a surface that has the tokens of a
// request. The error is one of [Find], or around [ErrStale] or [ErrUndecided], or
// ctx's own if ctx ended meanwhile. Its text holds nothing that the guard's store
// said; errors.As finds that.
func Check(ctx context.Context, g Guard, tokens []Token, key string) error {
	t, err := Find(tokens, key)
	if err != nil {
		return err
	}
	err = g.Admit(ctx, t)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStale):
		return &refusal{kind: ErrStale, cause: err}
	case ctx.Err() != nil:
		return &refusal{kind: ctx.Err(), cause: err}
	}
	return &refusal{kind: ErrUndecided, cause: err}
}

// refusal is the error of a guard that has not admitted a token. It does not say
// what the guard said.
type refusal struct{ kind, cause error }

func (r *refusal) Error() string { return "fence: " + r.kind.Error() }

func (r *refusal) Unwrap() []error { return []error{r.kind, r.cause} }

// Validate returns why a token is none that a lease has, for implementations of [Guard]:
// an error around [ErrMissing] for the number 0, and else around [ErrMalformed]. It is
// nil for one that may be.
func (t Token) Validate() error {
	switch {
	case t.Number == 0:
		return fmt.Errorf("fence: %w: the number is 0; use that of a lease that is held", ErrMissing)
	case t.Number < 0, t.Key == "", len(t.Key) > core.MaxKeyLength:
		return fmt.Errorf("fence: %w: want a positive number and a key of 1 to %d bytes, as fence.For returns them", ErrMalformed, core.MaxKeyLength)
	}
	return nil
}
