package simulation_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/redislock/internal/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var zero = time.Unix(1_700_000_000, 0)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

func claim(key string, process int, token int64, start, end, gone int) simulation.Claim {
	return simulation.Claim{Process: process, Key: key, Room: 1, Token: token, Start: at(start), End: at(end), Gone: at(gone)}
}

func granted(process int, token int64, call, ret int) simulation.Attempt {
	return simulation.Attempt{Process: process, Key: "k", Room: 1, Token: token, Granted: true, Waits: true, Call: at(call), Return: at(ret)}
}

func withRoom(room int, c simulation.Claim) simulation.Claim {
	c.Room = room
	return c
}

func roomy(room int, a simulation.Attempt) simulation.Attempt {
	a.Room = room
	return a
}

// TestCheckersFindWhatTheyLookFor gives each checker a history that breaks its
// promise and one that just does not.
func TestCheckersFindWhatTheyLookFor(t *testing.T) {
	exclusive := simulation.Rules{Exclusive: true}
	healthy := simulation.Rules{Healthy: at(0), Wake: 100 * time.Millisecond}
	for _, tt := range []struct {
		name     string
		rules    simulation.Rules
		claims   []simulation.Claim
		attempts []simulation.Attempt
		want     string // the violation's kind; empty for none
	}{
		{name: "claims that touch", rules: exclusive, claims: []simulation.Claim{claim("k", 1, 1, 0, 10, 10), claim("k", 2, 2, 10, 20, 20)}},
		{name: "claims that overlap", rules: exclusive, want: "exclusion", claims: []simulation.Claim{claim("k", 2, 2, 9, 20, 20), claim("k", 1, 1, 0, 10, 10)}},
		{name: "a claim inside a long one", rules: exclusive, want: "exclusion", claims: []simulation.Claim{claim("k", 1, 1, 0, 90, 90), claim("k", 2, 2, 10, 20, 20), claim("k", 3, 3, 30, 40, 40)}},
		{name: "claims that overlap where they may", claims: []simulation.Claim{claim("k", 2, 2, 9, 20, 20), claim("k", 1, 1, 0, 10, 10)}},
		{name: "claims of two keys", rules: exclusive, claims: []simulation.Claim{claim("k", 1, 1, 0, 10, 10), claim("j", 2, 2, 5, 20, 20)}},
		{name: "a claim that was over at its start", rules: exclusive, claims: []simulation.Claim{claim("k", 1, 1, 0, 10, 10), claim("k", 2, 2, 5, 5, 20)}},
		{name: "readers together", rules: exclusive, claims: []simulation.Claim{withRoom(0, claim("k", 1, 1, 0, 10, 10)), withRoom(0, claim("k", 2, 2, 5, 15, 15))}},
		{name: "a reader beside a writer", rules: exclusive, want: "exclusion", claims: []simulation.Claim{withRoom(0, claim("k", 1, 1, 0, 10, 10)), claim("k", 2, 2, 5, 15, 15)}},
		{name: "two permits of two", rules: exclusive, claims: []simulation.Claim{withRoom(2, claim("k", 1, 1, 0, 10, 10)), withRoom(2, claim("k", 1, 2, 5, 15, 15)), withRoom(2, claim("k", 1, 3, 10, 15, 15))}},
		{name: "three permits of two", rules: exclusive, want: "exclusion", claims: []simulation.Claim{withRoom(2, claim("k", 1, 1, 0, 10, 10)), withRoom(2, claim("k", 1, 2, 5, 15, 15)), withRoom(2, claim("k", 1, 3, 9, 15, 15))}},
		{name: "a permit of three beside two of two", rules: exclusive, want: "exclusion", claims: []simulation.Claim{withRoom(2, claim("k", 1, 1, 0, 10, 10)), withRoom(2, claim("k", 2, 2, 5, 15, 15)), withRoom(3, claim("k", 3, 3, 9, 15, 15))}},
		{name: "readers of one process beside a permit of two", rules: exclusive, claims: []simulation.Claim{withRoom(2, claim("k", 1, 1, 0, 10, 10)), withRoom(0, claim("k", 2, 2, 5, 15, 15)), withRoom(0, claim("k", 2, 3, 9, 15, 15))}},
		{name: "falling tokens of readers", rules: exclusive, attempts: []simulation.Attempt{roomy(0, granted(1, 6, 0, 10)), roomy(0, granted(2, 5, 11, 12))}},
		{name: "a writer's token below a reader's", rules: exclusive, want: "tokens", attempts: []simulation.Attempt{roomy(0, granted(1, 6, 0, 10)), granted(2, 5, 11, 12)}},
		{name: "a reader's token below a writer's", rules: exclusive, want: "tokens", attempts: []simulation.Attempt{granted(1, 6, 0, 10), roomy(0, granted(2, 5, 11, 12))}},
		{name: "rising tokens", rules: exclusive, attempts: []simulation.Attempt{granted(1, 5, 0, 10), granted(2, 6, 11, 12)}},
		{name: "falling tokens", rules: exclusive, want: "tokens", attempts: []simulation.Attempt{granted(1, 6, 0, 10), granted(2, 5, 11, 12)}},
		{name: "falling tokens of calls at the same time", rules: exclusive, attempts: []simulation.Attempt{granted(1, 6, 0, 10), granted(2, 5, 9, 12)}},
		{name: "the same token twice", rules: exclusive, want: "tokens", attempts: []simulation.Attempt{granted(1, 6, 0, 10), granted(2, 6, 9, 12)}},
		{name: "a holder's token below that of an earlier one", rules: exclusive, want: "tokens", claims: []simulation.Claim{claim("k", 1, 6, 0, 10, 10), claim("k", 2, 5, 11, 12, 12)}},
		{name: "a call in time", rules: simulation.Rules{Grace: 50 * time.Millisecond}, attempts: []simulation.Attempt{{Key: "k", Call: at(0), Return: at(150), By: at(100)}}},
		{name: "a call too late", rules: simulation.Rules{Grace: 50 * time.Millisecond}, want: "return", attempts: []simulation.Attempt{{Key: "k", Call: at(0), Return: at(151), By: at(100)}}},
		{
			name: "a waiter woken in time", rules: healthy,
			claims:   []simulation.Claim{claim("k", 1, 1, 0, 50, 50), claim("k", 2, 2, 150, 160, 160)},
			attempts: []simulation.Attempt{granted(2, 2, 10, 150)},
		},
		{
			name: "a waiter woken too late", rules: healthy, want: "wake-up",
			claims:   []simulation.Claim{claim("k", 1, 1, 0, 50, 50), claim("k", 2, 2, 151, 160, 160)},
			attempts: []simulation.Attempt{granted(2, 2, 10, 151)},
		},
		{
			name: "a waiter never woken", rules: healthy, want: "wake-up",
			claims:   []simulation.Claim{claim("k", 1, 1, 0, 50, 50)},
			attempts: []simulation.Attempt{{Key: "k", Waits: true, Call: at(10), Return: at(5000)}},
		},
		{
			name: "a waiter woken too late while not all was well", rules: simulation.Rules{Healthy: at(1000), Wake: 100 * time.Millisecond},
			claims:   []simulation.Claim{claim("k", 1, 1, 0, 50, 50), claim("k", 2, 2, 1100, 1160, 1160)},
			attempts: []simulation.Attempt{granted(2, 2, 10, 1100)},
		},
		{
			name: "a free key that nobody waits for", rules: healthy,
			claims: []simulation.Claim{claim("k", 1, 1, 0, 50, 50), claim("k", 2, 2, 1000, 1060, 1060)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h simulation.History
			for _, c := range tt.claims {
				h.Claimed(c)
			}
			for _, a := range tt.attempts {
				h.Attempted(a)
			}
			broken := h.Check(tt.rules)
			if tt.want == "" && len(broken) > 0 || tt.want != "" && (len(broken) == 0 || !strings.HasPrefix(broken[0], tt.want)) {
				t.Errorf("%q, want %q", broken, tt.want)
			}
		})
	}
}
