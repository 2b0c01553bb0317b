// Package carried tells the engine of the fencing tokens that came with a request, which package
// core/fence keeps in a context.
package carried

import "context"

// Key is the context key of the tokens.
const Key = "github.com/lockaround/lockaround/core/fence.Token"

// Tokens are those of a context.
type Tokens interface {
	// Number is the token of a key, without a namespace; 0 if there is none.
	Number(key string) int64
}

// Number returns the token of a key that ctx carries; 0 if it carries none.
func Number(ctx context.Context, key string) int64 {
	if t, ok := ctx.Value(Key).(Tokens); ok {
		return t.Number(key)
	}
	return 0
}
