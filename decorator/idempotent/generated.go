package idempotent

import (
	"context"
	"crypto/sha256"

	"github.com/lockaround/lockaround/decorator/codec"
)

// Call is [Guard.Do] for a function with several arguments and results, as [Func.Call] is for one with one of each:
// the code that lockgen generates calls it. args are all that the call acts on, and the key is that of src. Out is a
// struct with the results in exported fields.
func Call[T, Out any](ctx context.Context, g *Guard[T], src T, args any, fn func(context.Context) (Out, error)) (out Out, err error) {
	encoded, err := codec.JSON.Marshal(args)
	if err != nil {
		return out, g.failure(ErrMismatch, "the argument cannot be encoded, so that it cannot be compared", err)
	}
	var failed error
	replay, err := g.Do(ctx, src, sha256.Sum256(encoded), func(ctx context.Context) Ending {
		if out, failed = fn(ctx); failed != nil {
			return Ending{}
		}
		answer, err := codec.JSON.Marshal(out)
		if err != nil {
			answer = make([]byte, g.policy.MaxBytes+1)
		}
		return Ending{Answer: answer, Keep: true}
	})
	switch {
	case failed != nil && err == nil:
		return out, failed
	case err != nil || replay == nil:
		return out, err
	}
	if err := codec.JSON.Unmarshal(replay, &out); err != nil {
		var none Out
		return none, g.failure(ErrNoReplay, "it is not of the function's type", err)
	}
	return out, nil
}
