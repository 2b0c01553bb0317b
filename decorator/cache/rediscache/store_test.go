package rediscache_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/redisnet"
)

const key = "shop:cache:k" // in Redis

func mustPut(t testing.TB, s cache.Store, key string, token int64, value string, ttl time.Duration) {
	t.Helper()
	if _, err := s.Claim(t.Context(), key, token, time.Hour); err != nil {
		t.Fatal(err)
	}
	if stored, err := s.Put(t.Context(), key, token, []byte(value), ttl); !stored || err != nil {
		t.Fatalf("put: %t, %v", stored, err)
	}
}

func mustRead(t testing.TB, s cache.Store, key, want string) {
	t.Helper()
	if e, err := s.Get(t.Context(), key); string(e.Value) != want || err != nil {
		t.Errorf("read %q, %v; want %q", e.Value, err, want)
	}
}

func TestWhatCannotServeIsRefused(t *testing.T) {
	addrs := []string{"127.0.0.1:1"}
	cluster := func(o redis.ClusterOptions) redis.UniversalClient {
		o.Addrs = addrs
		c := redis.NewClusterClient(&o)
		t.Cleanup(func() { closeClient(t, c) })
		return c
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addrs[0]}})
	defer closeClient(t, ring)
	sentinel := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: addrs, RouteRandomly: true})
	defer closeClient(t, sentinel)
	for says, c := range map[string]redis.UniversalClient{
		"is nil":              nil,
		"the client is nil":   (*redis.Client)(nil),
		"client is nil":       (*redis.ClusterClient)(nil),
		"Ring":                ring,
		"without ReadOnly":    cluster(redis.ClusterOptions{ReadOnly: true}),
		"RouteByLatency":      cluster(redis.ClusterOptions{RouteByLatency: true}),
		"RouteRandomly":       cluster(redis.ClusterOptions{RouteRandomly: true}),
		"reads from replicas": sentinel,
	} {
		if _, err := rediscache.New(c, "p:"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%T: got %v; want one with %q", c, err, says)
		}
	}
	if _, err := rediscache.New(cluster(redis.ClusterOptions{}), ""); err == nil || !strings.Contains(err.Error(), "prefix is empty") {
		t.Errorf("no prefix: %v", err)
	}
	if _, err := rediscache.New(cluster(redis.ClusterOptions{}), "p:"); err != nil {
		t.Error(err)
	}
}

func TestEndedEntryLeavesNothingBehind(t *testing.T) {
	rdb := startServer(t).client(redis.Options{})
	s := newStore(t, rdb)
	gone := func(name string) {
		t.Helper()
		until(t, name+" to be gone", func() bool { return rdb.DBSize(t.Context()).Val() == 0 })
	}
	const short = 20 * time.Millisecond
	for name, leave := range map[string]func() error{
		"a claim": func() error {
			_, err := s.Claim(t.Context(), "k", 5, short)
			return err
		},
		"an invalidated claim": func() error {
			_, err := s.Claim(t.Context(), "k", 5, short)
			return errors.Join(err, s.Invalidate(t.Context(), "k"))
		},
		"a value": func() error {
			_, err := s.Claim(t.Context(), "k", 5, short)
			_, err2 := s.Put(t.Context(), "k", 5, []byte("v"), 2*short)
			return errors.Join(err, err2)
		},
		"a value whose claim has ended": func() error {
			mustPut(t, s, "k", 5, "v", time.Hour)
			if err := rdb.SetRange(t.Context(), key, 21, "00000000000001").Err(); err != nil { // as if it had
				return err
			}
			mustRead(t, s, "k", "v")
			return s.Invalidate(t.Context(), "k")
		},
		"an invalidation without a claim": func() error { return s.Invalidate(t.Context(), "k") },
	} {
		if err := leave(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		gone(name)
	}
}

func TestWhatSomethingElseWroteIsLeftAlone(t *testing.T) {
	rdb := startServer(t).client(redis.Options{})
	s := newStore(t, rdb)
	for name, spoil := range map[string]func() error{
		"text":            func() error { return rdb.Set(t.Context(), key, "text", 0).Err() },
		"longer text":     func() error { return rdb.Set(t.Context(), key, strings.Repeat("1", 80), 0).Err() },
		"a later version": func() error { return rdb.Set(t.Context(), key, "2l"+strings.Repeat("1", 80), 0).Err() },
		"cut off":         func() error { return rdb.Set(t.Context(), key, "1l"+strings.Repeat("1", 50), 0).Err() },
		"a list":          func() error { return rdb.RPush(t.Context(), key, "x").Err() },
	} {
		if err := errors.Join(rdb.FlushAll(t.Context()).Err(), spoil()); err != nil {
			t.Fatal(err)
		}
		before := rdb.Dump(t.Context(), key).Val()
		_, get := s.Get(t.Context(), "k")
		_, claim := s.Claim(t.Context(), "k", 5, time.Hour)
		_, put := s.Put(t.Context(), "k", 5, []byte("v"), time.Hour)
		for did, err := range map[string]error{"get": get, "claim": claim, "put": put, "invalidate": s.Invalidate(t.Context(), "k")} {
			switch {
			case name == "longer text" && did == "get":
				// All that a reader looks at is in order but for its stage.
			case err == nil || !strings.HasPrefix(err.Error(), "rediscache: "+did) || strings.Contains(err.Error(), "shop:"):
				t.Errorf("%s: %s: %v; want an error that says so without the key", name, did, err)
			case name != "a list" && !strings.Contains(err.Error(), "holds something else"):
				t.Errorf("%s: %s: %v", name, did, err)
			}
		}
		if rdb.Dump(t.Context(), key).Val() != before {
			t.Errorf("%s: it was changed", name)
		}
	}
}

func TestServerWithoutMemoryStillInvalidates(t *testing.T) {
	rdb := startServer(t).client(redis.Options{})
	s := newStore(t, rdb)
	mustPut(t, s, "k", 5, "v", time.Hour)
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	mustRead(t, s, "k", "v")
	if _, err := s.Claim(t.Context(), "k", 6, time.Hour); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("claim: %v; want the server's own error", err)
	}
	if err := s.Invalidate(t.Context(), "k"); err != nil {
		t.Errorf("invalidate: %v", err)
	}
	mustRead(t, s, "k", "")
	if stored, _ := s.Put(t.Context(), "k", 5, []byte("old"), time.Hour); stored {
		t.Error("what was loaded before the invalidation is stored")
	}
}

func TestScriptIsSentAgainWhenTheServerHasForgottenIt(t *testing.T) {
	rdb := startServer(t).client(redis.Options{})
	s := newStore(t, rdb)
	for n := range int64(3) {
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, "k", n+1, "v", time.Hour)
		if err := errors.Join(rdb.ScriptFlush(t.Context()).Err(), s.Invalidate(t.Context(), "k")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadingIsOneRoundTrip(t *testing.T) {
	n := redisnet.New()
	s := newStore(t, startServer(t).client(n.By(redis.Options{})))
	mustPut(t, s, "k", 5, "v", time.Hour)
	mustRead(t, s, "k", "v")
	for _, key := range []string{"k", "none"} {
		before := n.Written()
		if _, err := s.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if sent := n.Written() - before; sent != 1 {
			t.Errorf("%s: sent %d times; want once", key, sent)
		}
	}
}

func TestTimeOfTheAnswerIsNotLeft(t *testing.T) {
	n := redisnet.New()
	s := newStore(t, startServer(t).client(n.By(redis.Options{})))
	mustPut(t, s, "k", 5, "v", time.Hour)
	const late = 50 * time.Millisecond
	n.Delay(late)
	if e, err := s.Get(t.Context(), "k"); err != nil || e.Value == nil || e.Left > time.Hour-late {
		t.Errorf("get: %v left, %v; want at most %v", e.Left, err, time.Hour-late)
	}
	if e, err := s.Claim(t.Context(), "k", 5, time.Hour); err != nil || e.Value == nil || e.Left > time.Hour-late {
		t.Errorf("claim: %v left, %v; want at most %v", e.Left, err, time.Hour-late)
	}
}

func TestEndedContextIsAnError(t *testing.T) {
	s := newStore(t, startServer(t).client(redis.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, get := s.Get(ctx, "k")
	_, claim := s.Claim(ctx, "k", 5, time.Hour)
	_, put := s.Put(ctx, "k", 5, nil, time.Hour)
	for did, err := range map[string]error{"get": get, "claim": claim, "put": put, "invalidate": s.Invalidate(ctx, "k"), "listen": s.Listen(ctx, func() {}, nil)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", did, err)
		}
	}
}

func TestUserOfAnACLNeedsWhatTheDocumentationSays(t *testing.T) {
	srv := startServer(t)
	admin := srv.client(redis.Options{})
	rules := "ACL SETUSER app on >secret resetchannels resetkeys -@all ~shop:cache:* &shop:cache:changes +evalsha +eval +get +pttl +getrange +setrange +set +pexpireat +del +time +publish +subscribe +ping"
	var words []any
	for _, w := range strings.Fields(rules) {
		words = append(words, w)
	}
	if err := admin.Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, srv.client(redis.Options{Username: "app", Password: "secret", Protocol: 2}))
	heard := listen(t, s)
	for n := range int64(2) {
		mustPut(t, s, "k", n+1, "v", time.Hour)
		mustRead(t, s, "k", "v")
	}
	if _, err := s.Claim(t.Context(), "k", 2, time.Hour); err != nil {
		t.Error(err)
	}
	if err := s.Invalidate(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	heard.mustBe("k", "k", "k")

	// Without the channel nothing is done by halves.
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	s = newStore(t, srv.client(redis.Options{Username: "app", Password: "secret", Protocol: 2}))
	if _, err := s.Claim(t.Context(), "k", 3, time.Hour); err != nil {
		t.Fatal(err)
	}
	if stored, err := s.Put(t.Context(), "k", 3, []byte("v"), time.Hour); stored || err == nil {
		t.Errorf("put: %t, %v; want an error", stored, err)
	}
	mustRead(t, s, "k", "")
}
