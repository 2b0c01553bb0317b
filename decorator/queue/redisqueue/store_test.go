package redisqueue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
)

var rules = queue.Rules{Attempts: 3, MaxLength: 100, KeepFor: time.Hour, KeepCount: 10}

func open(t *testing.T, s *redisqueue.Store, r queue.Rules) queue.Queue {
	t.Helper()
	q, err := s.Open("refund:{OrderID}", r)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func mustAppend(t *testing.T, q queue.Queue, key, id string) queue.Place {
	t.Helper()
	p, err := q.Append(t.Context(), key, queue.New{ID: id, Payload: []byte(id)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func holder(key string, token int64) queue.Holder {
	return queue.Holder{Key: key, Token: token, Worker: "w", For: time.Minute}
}

func TestClientsThatCannotServeAreRefused(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = c.Close() }()
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { _ = ring.Close() }()
	replicas := redis.NewClusterClient(&redis.ClusterOptions{ReadOnly: true})
	defer func() { _ = replicas.Close() }()
	for what, try := range map[string]func() (*redisqueue.Store, error){
		"no client":       func() (*redisqueue.Store, error) { return redisqueue.New(nil, "q:") },
		"a nil client":    func() (*redisqueue.Store, error) { return redisqueue.New((*redis.Client)(nil), "q:") },
		"a ring":          func() (*redisqueue.Store, error) { return redisqueue.New(ring, "q:") },
		"replicas":        func() (*redisqueue.Store, error) { return redisqueue.New(replicas, "q:") },
		"no prefix":       func() (*redisqueue.Store, error) { return redisqueue.New(c, "") },
		"a braced prefix": func() (*redisqueue.Store, error) { return redisqueue.New(c, "{q}:") },
		"no shards":       func() (*redisqueue.Store, error) { return redisqueue.New(c, "q:", redisqueue.WithShards(0)) },
		"many shards":     func() (*redisqueue.Store, error) { return redisqueue.New(c, "q:", redisqueue.WithShards(65)) },
	} {
		if s, err := try(); err == nil || s != nil || !strings.HasPrefix(err.Error(), "redisqueue: ") {
			t.Errorf("%s: %v; want it refused", what, err)
		}
	}
	s, err := redisqueue.New(c, "q:", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", strings.Repeat("n", 257)} {
		if _, err := s.Open(name, rules); err == nil {
			t.Errorf("a name of %d bytes is accepted", len(name))
		}
	}
}

func TestServerThatIsDownIsAnError(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = c.Close() }()
	q := open(t, newStore(t, c), rules)
	_, err := q.Append(t.Context(), "k", queue.New{ID: "1"})
	_, err2 := q.Begin(t.Context(), holder("k", 1))
	_, err3 := q.Claim(t.Context(), queue.ClaimRequest{For: time.Second})
	for _, err := range []error{err, err2, err3, q.Listen(t.Context(), func() {}, func(int, time.Duration) {})} {
		if err == nil || !strings.HasPrefix(err.Error(), "redisqueue: ") {
			t.Errorf("%v", err)
		}
	}
}

func TestEvictionShows(t *testing.T) {
	for what, evicted := range map[string]string{"the items": "*q:*", "the key": "*}k:*"} {
		t.Run(what, func(t *testing.T) {
			c := client(t, testservers.Redis(t), redis.Options{})
			q := open(t, newStore(t, c), rules)
			mustAppend(t, q, "k", "1")
			keys, err := c.Keys(t.Context(), evicted).Result()
			if err != nil || len(keys) != 1 {
				t.Fatalf("keys %q, %v", keys, err)
			}
			if err := c.Del(t.Context(), keys[0]).Err(); err != nil {
				t.Fatal(err)
			}
			_, err = q.Append(t.Context(), "k", queue.New{ID: "2"})
			_, err2 := q.Begin(t.Context(), holder("k", 1))
			for _, err := range []error{err, err2} {
				if !errors.Is(err, queue.ErrDamaged) {
					t.Errorf("%v; want queue.ErrDamaged", err)
				}
			}
			mustAppend(t, q, "other", "1")
		})
	}
}

// TestClockThatGoesBackHoldsNothingUp: a server whose clock is an hour behind what the shard has
// seen goes on from there, and a wait is no longer for it.
func TestClockThatGoesBackHoldsNothingUp(t *testing.T) {
	c := client(t, testservers.Redis(t), redis.Options{})
	spaced := rules
	spaced.Spacing = 50 * time.Millisecond
	q := open(t, newStore(t, c), spaced)
	mustAppend(t, q, "k", "0")
	shard, err := c.Keys(t.Context(), "*}h").Result()
	if err != nil || len(shard) != 1 {
		t.Fatalf("keys %q, %v", shard, err)
	}
	ahead := time.Now().Add(time.Hour).UnixMicro() // as the former master's clock was
	if err := c.Eval(t.Context(), `return redis.call('HSET', KEYS[1], 'c', cmsgpack.pack(tonumber(ARGV[1]), 0, 1))`, shard, ahead).Err(); err != nil {
		t.Fatal(err)
	}
	last := mustAppend(t, q, "k", "1").Sequence
	token := int64(0)
	var asked, first time.Time
	for n := range 2 {
		began := time.Now()
		var step queue.Step
		for step.Item == nil {
			token++
			asked = time.Now()
			if step, err = q.Begin(t.Context(), holder("k", token)); err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > patience {
				t.Fatalf("the key is due in %v", step.In)
			}
		}
		if n == 0 {
			first = asked
		} else if after := time.Since(first); after < spaced.Spacing {
			t.Errorf("the second start came after %v", after)
		}
		if _, err := q.End(t.Context(), holder("k", token), queue.Ending{Sequence: step.Item.Sequence, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if p := mustAppend(t, q, "k2", "1"); p.Sequence <= last {
		t.Errorf("sequence %d after %d", p.Sequence, last)
	}
}

// TestListedRightsAreEnough: the commands and patterns of the package's documentation.
func TestListedRightsAreEnough(t *testing.T) {
	s := testservers.Redis(t)
	admin := client(t, s, redis.Options{})
	user := strings.Fields("ACL SETUSER queues on >secret resetkeys resetchannels ~shop:queue:* &shop:queue:due:* -@all +hello +evalsha +eval +time +get +set +hget +hmget +hset +hdel +llen +lindex +lpop +rpush +zadd +zrem +zscore +zcard +zrange +zrangebyscore +pexpire +persist +hscan +zscan +publish +subscribe +ping")
	args := make([]any, len(user))
	for i, a := range user {
		args[i] = a
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	hold := rules
	hold.OnDead, hold.Attempts = queue.Hold, 1
	q := open(t, newStore(t, client(t, s, redis.Options{Username: "queues", Password: "secret"})), hold)
	up, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- q.Listen(t.Context(), func() { close(up) }, func(int, time.Duration) {}) }()
	select {
	case <-up:
	case err := <-ended:
		t.Fatal(err)
	}
	p := mustAppend(t, q, "k", "1")
	mustAppend(t, q, "k", "2")
	_, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: "w", Max: 1, For: time.Minute, Return: []string{"k"}})
	step, err2 := q.Begin(t.Context(), holder("k", 1))
	_, err3 := q.End(t.Context(), holder("k", 1), queue.Ending{Sequence: p.Sequence, Attempt: 1, Outcome: queue.Dead})
	_, err4 := q.Status(t.Context(), p.ID)
	_, err5 := q.Parked(t.Context(), 1)
	_, err6 := q.Stats(t.Context())
	err7 := q.Resume(t.Context(), p.ID, queue.Drop)
	if err := errors.Join(err, err2, err3, err4, err5, err6, err7); err != nil || step.Item == nil {
		t.Errorf("%+v, %v", step, err)
	}
}

func TestNothingIsLeftOfAnIdleKeyAfterItsTime(t *testing.T) {
	c := client(t, testservers.Redis(t), redis.Options{})
	brief := rules
	brief.KeepFor = time.Second
	q := open(t, newStore(t, c), brief)
	p := mustAppend(t, q, "k", "1")
	if _, err := q.Begin(t.Context(), holder("k", 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.End(t.Context(), holder("k", 1), queue.Ending{Sequence: p.Sequence, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		keys, err := c.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 1 && strings.HasSuffix(keys[0], "}h") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left are %q", keys)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
