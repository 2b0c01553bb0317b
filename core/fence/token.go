package fence

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/lockaround/lockaround/core"
)

// Token is the fencing token of one key's holder. The zero value is none.
type Token struct {
	Key    string // as core.Lease.Key returns it, without the engine's namespace
	Number int64  // positive; see core.Lease.Token
}

// String is the token as it travels: the key, percent-encoded, an equals sign and
// the number in decimal. [Parse] reads it back.
func (t Token) String() string {
	return url.QueryEscape(t.Key) + "=" + strconv.FormatInt(t.Number, 10)
}

// Parse reads what [Token.String] wrote. The error is around [ErrMalformed].
func Parse(s string) (Token, error) {
	key, number, ok := strings.Cut(s, "=")
	k, err := url.QueryUnescape(key)
	n, nerr := strconv.ParseInt(number, 10, 64)
	t := Token{Key: k, Number: n}
	if !ok || err != nil || nerr != nil || k == "" || len(k) > core.MaxKeyLength || n <= 0 || t.String() != s {
		return Token{}, fmt.Errorf("fence: %w: want key=number as Token.String writes it", ErrMalformed)
	}
	return t, nil
}

type tokensKey struct{}

// NewContext returns a context that carries tokens which came with a request. They
// replace those that ctx may carry already.
func NewContext(ctx context.Context, tokens ...Token) context.Context {
	return context.WithValue(ctx, tokensKey{}, tokens)
}

// All returns the tokens that ctx carries: of the leases that it holds, the
// innermost first, and then those of [NewContext]. A lease that is over has none.
func All(ctx context.Context) []Token {
	var all []Token
	for _, l := range core.LeasesFrom(ctx) {
		for _, key := range l.Keys() {
			if n := l.TokenOf(key); n > 0 {
				all = append(all, Token{key, n})
			}
		}
	}
	came, _ := ctx.Value(tokensKey{}).([]Token)
	return append(all, came...)
}

// For returns the token of a key that ctx carries. The error is around [ErrMissing]
// if it carries none at all, and around [ErrOtherKey] if it carries those of other
// keys only.
func For(ctx context.Context, key string) (Token, error) {
	all := All(ctx)
	for _, t := range all {
		if t.Key == key {
			return t, nil
		}
	}
	if len(all) > 0 {
		return Token{}, fmt.Errorf("fence: %w: the call holds another lock than the one that guards this resource", ErrOtherKey)
	}
	return Token{}, fmt.Errorf("fence: %w: the context carries no token; call this with the context that the guarded call got, or behind the surface that reads tokens from requests", ErrMissing)
}
