// Package fence refuses the late writes of holders that were paused past their lease.
//
// A lock alone cannot: a process that stops for longer than its TTL, with a write on
// its way, wakes up and writes beside the next holder. Every holder has a fencing
// token, a number larger than that of any holder before it. A guard keeps the largest
// token that has come to a resource, and refuses a smaller one.
//
//	key := "stock:" + core.Escape(sku) // as the lock has it
//	token, err := fence.For(ctx, key)  // in the guarded call
//	err = redisfence.New(rdb).Admit(ctx, token) // only if it reads before it writes: no earlier holder writes any more
//	left, err := deduct.Run(ctx, rdb, token, []string{"units:{" + key + "}"}, 3).Int() // check and write in one step
//
// where deduct is a redisfence.Script, such as
// redisfence.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`).
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
//
// # Files
//
// Each begins with what a program calls:
//
//	token.go   tokens: what a context carries, and how they travel
//	fence.go   Guard and Check; Memory, a guard within one process
//	sql.go     SQL, a guard with a table of its own; and the two dialects
//	column.go  Column, a guard in a column of the row that is written
package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// Memory is a guard for a resource in the memory of this process: a cache, a file
// that one process writes, a device. The zero value is ready for use. It is safe for
// concurrent use and must not be copied.
//
// It knows what came to this process only: where several processes write to one
// resource, each with a Memory of its own, a stale holder gets through by any process
// that the next holder has not come to. And a restart forgets all numbers, so that the
// first token to come is admitted whatever it is.
//
// It keeps one entry for each key, of about 200 bytes and the key, until [Memory.Forget].
type Memory struct {
	mu   sync.Mutex
	keys map[string]*entry
}

// entry is what is known of one key.
type entry struct {
	turn      chan struct{} // of capacity 1, full while somebody has the rest
	largest   int64
	forgotten bool // it is not in Memory.keys any more
}

// Admit admits a token. It waits for a write of the same key under way in
// [Memory.Do], so that after it has returned nil no write of a smaller token runs. The
// error is around [ErrStale], that of [Token.Validate], or the cause of ctx's end.
func (m *Memory) Admit(ctx context.Context, t Token) error {
	return m.Do(ctx, t, func() error { return nil })
}

// Do runs write if t is admitted, and admits no other token of the key before write
// has returned: check and write are one step. Writes of one key run one at a time,
// those of other keys beside them. A write that uses Do or Admit with a token of the
// same key waits for itself.
//
// The error is write's own, or, without having run it, one of [Memory.Admit]'s. A
// token stays admitted when its write has failed or panicked: the same one, and larger
// ones, may try again.
func (m *Memory) Do(ctx context.Context, t Token, write func() error) error {
	if err := t.Validate(); err != nil {
		return err
	}
	e, err := m.enter(ctx, t.Key)
	if err != nil {
		return err
	}
	defer e.leave()
	if t.Number < e.largest {
		return fmt.Errorf("fence: %w: another holder was here since; take the lock anew", ErrStale)
	}
	e.largest = t.Number
	return write()
}

// Forget drops the entry of a key and reports whether there is none any more, which
// is not so while Do or Admit is at work on it.
//
// It is dangerous: the next token is admitted whatever it is, also that of a holder
// which has been paused since before. Forget a key only when nobody who ever had its
// lock can still write: because the resource itself is gone for good, or because all
// of its writers have ended.
func (m *Memory) Forget(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.keys[key]
	if e == nil {
		return true
	}
	select {
	case e.turn <- struct{}{}:
	default:
		return false
	}
	e.forgotten = true
	delete(m.keys, key)
	e.leave()
	return true
}

// enter returns the entry of a key, which is the caller's until he leaves it.
func (m *Memory) enter(ctx context.Context, key string) (*entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	for {
		e := m.entry(key)
		select {
		case e.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if !e.forgotten {
			return e, nil
		}
		e.leave()
	}
}

func (m *Memory) entry(key string) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.keys[key]
	if e == nil {
		if m.keys == nil {
			m.keys = make(map[string]*entry)
		}
		e = &entry{turn: make(chan struct{}, 1)}
		m.keys[key] = e
	}
	return e
}

func (e *entry) leave() { <-e.turn }
