package idempotent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Store keeps records: what has become of the call of each key. Implementations are safe for
// concurrent use, by many processes if these share what is behind them. Keys are any strings. An
// implementation passes package idempotenttest.
//
// An error that is none of those named here says that the store did not answer, or refused: what
// was asked for may have been done or not, or may be done later. All methods may be called again
// with the same arguments then.
type Store interface {
	// Begin returns the record of the key as it stands before this call. If there is none the
	// claim begins one: it is begun, by c.Run, for c.Keep. So it does if what is there was given up, unless
	// it was by c.Run itself: that is an ErrSuperseded.
	//
	// A record that another run has begun is taken over if c.Token is more than 0, the
	// fingerprints are equal, and the record's Alone has passed: it is that of c.Run from then on.
	// If its token is larger than c.Token, which is more than 0, the error is ErrSuperseded.
	//
	// A claim without a token, before its lock is taken, has the key for itself for c.Alone.
	Begin(ctx context.Context, key string, c Claim) (Record, error)

	// Finish stores the answer for c.Keep, if c.Run has begun the record or there is none, as after
	// a restart of the store. stored says whether it did. A nil answer is stored as an
	// empty one. The first answer of a run counts: a repeated one says that it is stored and
	// changes nothing. False is for a record of another run, and for one that was given up.
	Finish(ctx context.Context, key string, c Claim, answer []byte) (stored bool, err error)

	// GiveUp removes the record that c.Run has begun, so that the next call runs. For
	// c.Alone that run cannot begin or finish again, as by a late copy of its request.
	// Otherwise it does nothing.
	GiveUp(ctx context.Context, key string, c Claim) error

	// Forget removes whatever record there is.
	Forget(ctx context.Context, key string) error
}

// Run names one attempt to run a call. It is random.
type Run [16]byte

func newRun() (r Run) {
	_, _ = rand.Read(r[:]) // it never fails
	return r
}

// Claim is what a run says of itself.
type Claim struct {
	Run         Run
	Token       int64    // the fencing token of its lease; 0 before there is one
	Fingerprint [32]byte // SHA-256 of what was asked for
	Alone       time.Duration
	Keep        time.Duration
}

// Record is what a store has for a key. Its zero value is none.
type Record struct {
	State       State
	Run         Run           // that has begun it
	Token       int64         // the largest that was claimed with; 0 if none was
	Fingerprint [32]byte      // of who began it
	Alone       time.Duration // how long it cannot be taken over yet
	Answer      []byte        // if it is Done; the caller's own
}

// State is how far the call of a key has come.
type State uint8

// The states.
const (
	None  State = iota // there is no record
	Begun              // a run has begun, and its end is not known
	Done               // it has ended, and the record has its answer
)

// ErrSuperseded is the error of a Begin that came too late: the holder of a larger token has begun
// the key, or the run was given up. The lock has most likely been lost.
var ErrSuperseded = errors.New("idempotency claim superseded")

// The bounds of Claim.Alone and Claim.Keep.
const (
	MinKeep = time.Millisecond
	MaxKeep = 365 * 24 * time.Hour
)

// Validate returns an error if no Store may take c. It is for implementations, whose Begin, Finish
// and GiveUp return that error without having done anything.
func (c *Claim) Validate() error {
	switch {
	case c.Run == Run{}:
		return errors.New("idempotent: the claim has no Run; use 16 random bytes")
	case c.Token < 0:
		return fmt.Errorf("idempotent: the token is %d; use that of a lease, or 0 before there is one", c.Token)
	case c.Alone < MinKeep || c.Alone > MaxKeep:
		return fmt.Errorf("idempotent: Alone is %v; use %v to %v", c.Alone, MinKeep, MaxKeep)
	case c.Keep < c.Alone || c.Keep > MaxKeep:
		return fmt.Errorf("idempotent: Keep is %v; use at least Alone, %v, and at most %v", c.Keep, c.Alone, MaxKeep)
	}
	return nil
}
