package queue

import (
	"context"
	"database/sql"
	"time"
)

// Store has queues. An implementation is safe for concurrent use, by many processes if these
// share what is behind it, and passes package queuetest.
type Store interface {
	// Open returns the queue of that name. It does no I/O. All processes that use
	// a queue should have the same rules for it. The error is one of [Rules.Validate], or
	// says what of the name the store cannot keep.
	Open(name string, r Rules) (Queue, error)
}

// Queue is one queue of a store: the items of many keys, of which those of each key
// run one after the other. Package queue says what each operation is for. Keys are any
// strings of 1 to [MaxKey] bytes. Times are by the store's clock.
//
// An error that is none of those named here says that the store did not answer, or refused:
// what was asked for may have been done or not. All methods but Resume may be called again with the
// same arguments then.
type Queue interface {
	// Append adds an item at the end of the key's queue, unless the key has an item of
	// that ID: then it returns the place of that one, and changes nothing. The error is
	// [ErrFull] if the key has Rules.MaxLength items that have not ended.
	Append(ctx context.Context, key string, n New) (Place, error)

	// Claim names up to Max keys that are due, and claims them for Worker: no
	// other Claim names them for the time of For, or until their next Begin or End says
	// otherwise. First it prolongs the claims of Worker on Keep to For from now, and gives
	// up those on Return. A key of these two that is not Worker's any more is left alone.
	Claim(ctx context.Context, r ClaimRequest) (Claims, error)

	// Begin begins the first item of the key, if it is due, and claims the key for h.For.
	// Without such an item it gives up the claim, and Step says when there will be one; the
	// token is used up then, and begins nothing any more. The error is [ErrSuperseded] if h.Token
	// is below the largest that the key has seen, or has ended a run of the key already without
	// beginning another.
	Begin(ctx context.Context, h Holder) (Step, error)

	// End records how the run of h.Token that e names has ended. If e.Next is set it goes on
	// as Begin does. Otherwise it gives up the claim. The error is [ErrSuperseded] if that
	// run is not the key's present one, nor the one that h.Token ended last.
	End(ctx context.Context, h Holder, e Ending) (Step, error)

	// Status tells of an item, by Place.ID. The error is [ErrUnknown] if there is none, or
	// it has ended and is kept no more.
	Status(ctx context.Context, id string) (Status, error)

	// Parked returns up to limit keys that are parked, those parked longest first as far as
	// each shard goes.
	Parked(ctx context.Context, limit int) ([]Parked, error)

	// Resume lets a parked key go on; id is the Place.ID of its first item. The error is
	// [ErrNotParked] if that is not the first item of a parked key, and [ErrUnknown] if there
	// is no such item.
	Resume(ctx context.Context, id string, how Resumption) error

	// Stats counts what there is in the queue.
	Stats(ctx context.Context) (Stats, error)

	// Listen calls up when it has begun to hear, and due with a shard and in how much time, 0
	// or more, a key of it is due: of every key that is due after an Append, a Resume, a
	// claim that was given up, or an End without Next. It need not tell of what Begin, and End
	// with Next, have told their caller. Keys of one shard that are due at about the same time may be
	// told of once. It blocks until ctx ends, or until it has to assume that it does not
	// hear any more, and returns why. Both functions are called by one goroutine at a time, and
	// return at once.
	Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error

	// Shards is how many parts the queue has, 1 or more. Each key is in one of them, and a Claim
	// names keys of one. It does not change.
	Shards() int
}

// TxAppender is a Queue in a database that can append in a transaction of the user's own.
type TxAppender interface {
	Queue

	// AppendTx appends as Append does, in tx, which is of the store's database: the item is
	// there once tx is committed, and never if tx is rolled back. Until tx ends, every other
	// operation on the key waits for it. So the items of a key are in the order in which their
	// transactions were committed, and within one transaction in that of the calls.
	//
	// After an error other than [ErrFull] roll tx back.
	AppendTx(ctx context.Context, tx *sql.Tx, key string, n New) (Place, error)
}

// Bounds.
const (
	MaxKey     = 1024                 // bytes of a key
	MaxID      = 255                  // bytes of an item's ID
	MaxPayload = 16 << 20             // bytes of a payload
	MaxTime    = 365 * 24 * time.Hour // of every duration
	MinKeep    = time.Second          // the least Rules.KeepFor
)
