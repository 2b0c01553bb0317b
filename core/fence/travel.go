package fence

import (
	"context"
	"fmt"
	"strings"
)

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
