package redisfence_test

import (
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/testservers"
)

var set = redisfence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)

func mustHold(t testing.TB, rdb redis.UniversalClient, key, want string) {
	t.Helper()
	if got, err := rdb.Get(t.Context(), key).Result(); got != want || err != nil && !errors.Is(err, redis.Nil) {
		t.Errorf("%s holds %q, %v; want %q", key, got, err, want)
	}
}

func TestStaleTokenWritesNothing(t *testing.T) {
	rdb := start(t)
	write := func(n int64, value string) error {
		return set.Run(t.Context(), rdb, token("k", n), []string{"resource"}, value).Err()
	}
	mustBe(t, write(1<<53+1, "of 1"), nil)
	mustBe(t, write(1<<53+1, "of 1 again"), nil)
	mustBe(t, write(1<<53+2, "of 2"), nil)
	mustBe(t, write(1<<53+1, "late"), fence.ErrStale)
	mustHold(t, rdb, "resource", "of 2")

	mustBe(t, redisfence.New(rdb).Admit(t.Context(), token("k", 1<<53+3)), nil)
	mustBe(t, write(1<<53+2, "late"), fence.ErrStale)
	mustBe(t, write(0, "of nobody"), fence.ErrMissing)
	mustHold(t, rdb, "resource", "of 2")
}

// hash is what Redis names a script by in its errors.
var hash = regexp.MustCompile(`[0-9a-f]{40}`)

func TestScriptAnswersAsItDoesAlone(t *testing.T) {
	addr := testservers.Redis(t).Addr()
	for _, protocol := range []int{2, 3} {
		rdb := connect(t, addr, protocol)
		for name, src := range map[string]string{
			"keys and arguments":  `return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]}`,
			"in a function":       `local function f() return KEYS[1] .. ARGV[1] end return f()`,
			"number":              `return 42`,
			"fraction":            `return 3.9`,
			"text":                `return 'x'`,
			"status":              `return redis.call('SET', KEYS[1], 'v')`,
			"status by hand":      `return redis.status_reply('fine')`,
			"nothing":             `redis.call('SET', KEYS[1], 'v')`,
			"empty":               ``,
			"nil":                 `return nil`,
			"no value":            `return redis.call('GET', 'none')`,
			"true":                `return true`,
			"false":               `return false`,
			"list":                `return {1, 'a', {2, {3}}, false, 'after'}`,
			"list with a nil":     `return {1, nil, 3}`,
			"empty list":          `return {}`,
			"several":             `return 1, 2, 3`,
			"comment at the end":  `return 1 -- one`,
			"comment first":       "-- nothing\nreturn 1",
			"shebang":             "#!lua flags=allow-stale\nreturn KEYS[1]",
			"error reply":         `return redis.error_reply('MINE is mine')`,
			"error of a command":  `return redis.call('INCR', KEYS[2], 'x')`,
			"caught error":        `return redis.pcall('NONE')`,
			"error raised":        "local a = 1\nerror('mine')",
			"error in a list":     `return {1, redis.error_reply('MINE is in here')}`,
			"map":                 `redis.setresp(3) return redis.call('HGETALL', KEYS[2])`,
			"double":              `redis.setresp(3) return {double = 3.5}`,
			"what the fence says": `return {'stale'}`,
			"error of the fence":  `return redis.error_reply('fencing token is stale')`,
		} {
			t.Run(name+", RESP"+strconv.Itoa(protocol), func(t *testing.T) {
				if err := rdb.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				if err := rdb.HSet(t.Context(), "h", "f", "v").Err(); err != nil {
					t.Fatal(err)
				}
				keys, args := []string{"r", "h"}, []any{"a", 2, "2"}
				want, wantErr := rdb.Eval(t.Context(), src, keys, args...).Result()
				got, err := redisfence.NewScript(src).Run(t.Context(), rdb, token("k", 7), keys, args...).Result()
				if inList(want) {
					// The text of such an error is all there is to compare.
					want, got = list(want), list(got)
				}
				if !reflect.DeepEqual(got, want) || text(err) != text(wantErr) || errors.Is(err, redis.Nil) != errors.Is(wantErr, redis.Nil) {
					t.Errorf("got %#v, %v; alone %#v, %v", got, text(err), want, text(wantErr))
				}
				if errors.Is(err, fence.ErrStale) {
					t.Errorf("its own answer is taken for a refusal: %v", err)
				}
			})
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return hash.ReplaceAllString(err.Error(), "SHA")
}

func inList(v any) bool {
	for _, one := range asList(v) {
		if _, ok := one.(error); ok {
			return true
		}
	}
	return false
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

func list(v any) any {
	var texts []any
	for _, one := range asList(v) {
		if err, ok := one.(error); ok {
			one = text(err)
		}
		texts = append(texts, one)
	}
	return texts
}

func TestScriptSeesNothingOfTheFence(t *testing.T) {
	rdb := start(t)
	for _, name := range []string{"body", "largest", "keys", "args"} {
		src := `return {pcall(function() return tostring(` + name + `) end)}`
		got, err := redisfence.NewScript(src).Run(t.Context(), rdb, token("k", 7), nil).Slice()
		if err != nil || len(got) < 1 || got[0] != nil {
			t.Errorf("%s is visible: %v, %v", name, got, err)
		}
	}
}

func TestMalformedScriptRunsNothing(t *testing.T) {
	rdb := start(t)
	for _, src := range []string{"return (", "return 1 end", "--[[ open", "if true then", "return ...", "x = = 1"} {
		err := redisfence.NewScript(src).Run(t.Context(), rdb, token("k", 7), nil).Err()
		if err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: got %v", src, err)
		}
		mustBe(t, redisfence.New(rdb).Admit(t.Context(), token("k", 1)), nil) // 7 was not kept
	}
}

func TestFailedScriptLeavesItsTokenAdmitted(t *testing.T) {
	rdb := start(t)
	fails := redisfence.NewScript(`return redis.error_reply('MINE no units')`)
	if err := fails.Run(t.Context(), rdb, token("k", 7), nil).Err(); err == nil || err.Error() != "MINE no units" {
		t.Errorf("got %v", err)
	}
	mustBe(t, set.Run(t.Context(), rdb, token("k", 6), []string{"r"}, "late").Err(), fence.ErrStale)
	mustBe(t, set.Run(t.Context(), rdb, token("k", 7), []string{"r"}, "again").Err(), nil)
	mustHold(t, rdb, "r", "again")
}

func TestScriptIsSentAgainWhenTheServerHasForgottenIt(t *testing.T) {
	rdb := start(t)
	for n := range int64(3) {
		mustBe(t, set.Run(t.Context(), rdb, token("k", n+1), []string{"r"}, n).Err(), nil)
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		mustBe(t, set.Run(t.Context(), rdb, token("k", n), []string{"r"}, "late").Err(), []error{fence.ErrMissing, fence.ErrStale, fence.ErrStale}[n])
	}
	mustHold(t, rdb, "r", "2")
}

func TestScriptThatFailsLikeOneThatIsNotKnownRunsOnce(t *testing.T) {
	rdb := start(t)
	s := redisfence.NewScript(`redis.call('INCR', KEYS[1]) return redis.error_reply('NOSCRIPT mine')`)
	if err := s.Run(t.Context(), rdb, token("k", 1), []string{"r"}).Err(); err == nil {
		t.Error("its error is gone")
	}
	mustHold(t, rdb, "r", "1")
}

func TestKeyThatIsNoFenceKeepsEverythingOut(t *testing.T) {
	rdb := start(t)
	for name, spoil := range map[string]error{
		"text":             rdb.Set(t.Context(), redisfence.Key("text"), "x", 0).Err(),
		"number":           rdb.Set(t.Context(), redisfence.Key("number"), 12, 0).Err(),
		"as long as one":   rdb.Set(t.Context(), redisfence.Key("as long as one"), strings.Repeat("x", 19), 0).Err(),
		"of another type":  rdb.RPush(t.Context(), redisfence.Key("of another type"), "x").Err(),
		"an empty string ": rdb.Set(t.Context(), redisfence.Key("an empty string "), "", 0).Err(),
	} {
		if spoil != nil {
			t.Fatal(spoil)
		}
		err := set.Run(t.Context(), rdb, token(name, 9), []string{"r"}, "written").Err()
		if err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	mustHold(t, rdb, "r", "")
}

func TestServerWithoutMemoryRunsNothing(t *testing.T) {
	rdb := start(t)
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	const free = `return redis.call('DEL', KEYS[1])`
	mustBe(t, rdb.Eval(t.Context(), free, []string{"r"}).Err(), nil) // alone it needs no memory
	err := redisfence.NewScript(free).Run(t.Context(), rdb, token("k", 9), []string{"r"}).Err()
	if err == nil || !strings.Contains(err.Error(), "OOM") || errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v; want the server's own error", err)
	}
}

func TestWritesAreMadeInTheOrderOfTheirTokens(t *testing.T) {
	rdb := start(t)
	push := redisfence.NewScript(`return redis.call('RPUSH', KEYS[1], ARGV[1])`)
	var all sync.WaitGroup
	const n = 200
	for i := range int64(n) {
		all.Go(func() {
			err := push.Run(t.Context(), rdb, token("k", 1<<53+i), []string{"r"}, i).Err()
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	written, err := rdb.LRange(t.Context(), "r", 0, -1).Result()
	if err != nil || len(written) == 0 || written[len(written)-1] != strconv.Itoa(n-1) {
		t.Fatalf("wrote %q, %v; want the largest at the end", written, err)
	}
	last := -1
	for _, w := range written {
		i, err := strconv.Atoi(w)
		if err != nil || i <= last {
			t.Fatalf("wrote %q", written)
		}
		last = i
	}
}

func TestClusterRefusesAResourceInAnotherSlot(t *testing.T) {
	rdb := startCluster(t)
	const lockKey = "stock:42"
	here, elsewhere := "units:{"+lockKey+"}", "units:elsewhere"
	mustBe(t, set.Run(t.Context(), rdb, token(lockKey, 2), []string{here}, "v").Err(), nil)
	mustBe(t, set.Run(t.Context(), rdb, token(lockKey, 1), []string{here}, "late").Err(), fence.ErrStale)
	mustHold(t, rdb, here, "v")

	err := set.Run(t.Context(), rdb, token(lockKey, 9), []string{elsewhere}, "v").Err()
	if err == nil || !strings.Contains(err.Error(), "slot") || errors.Is(err, fence.ErrStale) {
		t.Errorf("a resource in another slot: %v", err)
	}
	mustBe(t, redisfence.New(rdb).Admit(t.Context(), token(lockKey, 3)), nil) // 9 was not kept

	tagged := redisfence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`,
		redisfence.WithKey(func(k string) string { return "fence:" + strings.Replace(k, "stock:", "stock:{", 1) + "}" }))
	mustBe(t, tagged.Run(t.Context(), rdb, token(lockKey, 1), []string{"units:{42}"}, "v").Err(), nil)
}

func TestClientsWithoutAReplyOfTheirOwnAreRefused(t *testing.T) {
	rdb := start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer closeClient(t, ring)
	pipe := rdb.TxPipeline()
	for says, c := range map[string]redis.Scripter{"pipeline": pipe, "Ring": ring, "nil": nil} {
		if err := set.Run(t.Context(), c, token("k", 1), []string{"r"}, "v").Err(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
	if pipe.Len() > 0 {
		t.Error("the pipeline has a command")
	}
}
