// Package carried is how the engine finds the fencing tokens that came with a request. Package
// core/fence puts them into the request's context.
package carried

import "context"

// ContextKey is the key of a context's Tokens.
const ContextKey = "github.com/lockaround/lockaround/core/fence.Token"

// Tokens are what came with a request.
type Tokens interface {
	// NumberOf returns the token of a key, and 0 if none came.
	NumberOf(key string) int64
}

// NumberOf returns the token of a key that came with ctx's request, and 0 if none did.
func NumberOf(ctx context.Context, key string) int64 {
	if all, ok := ctx.Value(ContextKey).(Tokens); ok {
		return all.NumberOf(key)
	}
	return 0
}
