package fence

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/carried"
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

// ContextKey is the context key under which the tokens of [NewContext] are found. It is a
// string, for contexts that pass on string keys only, as a gin.Context does. Its value is opaque: copy it from one context to another.
const ContextKey = carried.ContextKey

// carriedTokens are tokens that came with a request.
type carriedTokens []Token

// NumberOf returns the token of a key, and 0 if none came.
func (all carriedTokens) NumberOf(key string) int64 {
	t, _ := Find(all, key)
	return t.Number
}

// tokensContext is a context with tokens that came with a request.
type tokensContext struct {
	context.Context
	tokens carriedTokens
}

// Value answers for the tokens.
func (c *tokensContext) Value(key any) any {
	if key == ContextKey {
		return c.tokens
	}
	return c.Context.Value(key)
}

// NewContext returns a context that carries tokens which came with a request. They
// replace those that ctx may carry already, but not those of its leases. An acquisition that
// would wait for the hold of such a token fails with core.ErrDeadlock: see the package comment.
func NewContext(ctx context.Context, tokens ...Token) context.Context {
	return &tokensContext{ctx, slices.Clone(tokens)}
}

// came returns the tokens of NewContext.
func came(ctx context.Context) []Token {
	tokens, _ := ctx.Value(ContextKey).(carriedTokens)
	return tokens
}

// Of returns the tokens of a lease, one for each of its keys, sorted by key. Their
// numbers are 0 if its driver issues none.
func Of(l *core.Lease) []Token {
	var all []Token
	for _, key := range l.Keys() {
		all = append(all, Token{key, l.TokenOf(key)})
	}
	return all
}

// All returns the tokens that ctx carries, one for each key: of the leases that it
// holds, the innermost first, and then those of [NewContext]. A lease that is over
// has none.
func All(ctx context.Context) []Token {
	var all []Token
	add := func(t Token) {
		if t.Number > 0 && !slices.ContainsFunc(all, func(other Token) bool { return other.Key == t.Key }) {
			all = append(all, t)
		}
	}
	for _, l := range core.LeasesFrom(ctx) {
		for _, t := range Of(l) {
			add(t)
		}
	}
	for _, t := range came(ctx) {
		add(t)
	}
	return all
}

// For returns the token of a key that ctx carries. The error is around [ErrMissing]
// if it carries none at all, and around [ErrOtherKey] if it carries those of other
// keys only.
//
// Read the token once, before the resource is read, and give it to the guard with the
// write: a lease that has ended in between has none any more, which is as much a
// reason not to write, but the guard is there for the ends that nobody has noticed.
func For(ctx context.Context, key string) (Token, error) { return Find(All(ctx), key) }

// Find is [For] among these tokens.
func Find(tokens []Token, key string) (Token, error) {
	for _, t := range tokens {
		if t.Key == key {
			return t, nil
		}
	}
	if len(tokens) > 0 {
		return Token{}, fmt.Errorf("fence: %w: the call holds another lock than the one that guards this resource; in a key of a template values are escaped, as by core.Escape", ErrOtherKey)
	}
	return Token{}, fmt.Errorf("fence: %w: there is no lease, or it is over, and no token came with a request; use the context that the guarded call got, or be behind a surface that reads tokens", ErrMissing)
}

const (
	// Header is the HTTP header that tokens travel in, and in lower case the gRPC
	// metadata. Each value is one token as [Token.String] writes it. Keys are shown
	// in it, percent-encoded.
	Header = "Fencing-Token"

	// MaxTokens is how many tokens a request has at most.
	MaxTokens = 64
)

// Values returns what a client sends as values of [Header] for a call with ctx: all
// tokens that ctx carries, those that came with a request included, so that they
// travel on. It is empty if there are none. More than [MaxTokens] are an error.
func Values(ctx context.Context) ([]string, error) {
	all := All(ctx)
	if len(all) > MaxTokens {
		return nil, fmt.Errorf("fence: send the tokens of a call: its context carries %d; at most %d can travel", len(all), MaxTokens)
	}
	var values []string
	for _, t := range all {
		values = append(values, t.String())
	}
	return values, nil
}

// ParseValues reads the values of [Header] that came with a request. Proxies may have
// joined several into one, with commas. The error is around [ErrMalformed]: for a
// value that is no token, for more than [MaxTokens], and for a key with two tokens, of
// which nobody could say which one the guard is to be asked for.
func ParseValues(values []string) ([]Token, error) {
	var tokens []Token
	seen := make(map[string]bool)
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if one = strings.Trim(one, " \t"); one == "" {
				continue // RFC 9110, section 5.6.1.2
			}
			t, err := Parse(one)
			switch {
			case err != nil:
				return nil, err
			case seen[t.Key]:
				return nil, fmt.Errorf("fence: %w: a key has two tokens; send one for each", ErrMalformed)
			case len(tokens) == MaxTokens:
				return nil, fmt.Errorf("fence: %w: there are more than %d tokens", ErrMalformed, MaxTokens)
			}
			seen[t.Key] = true
			tokens = append(tokens, t)
		}
	}
	return tokens, nil
}
