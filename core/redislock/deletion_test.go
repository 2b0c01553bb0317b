package redislock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestWaiterIsServedThoughTheHolderDoesNotKnowOfIt has a key become a hash without a word to the session
// that would delete the string.
func TestWaiterIsServedThoughTheHolderDoesNotKnowOfIt(t *testing.T) {
	t.Parallel()
	s := testservers.Redis(t)
	proxy := redistest.NewProxy(t, s.Addr())
	holder, waiter := newEngine(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()})), newEngine(t, redis.NewClient(&redis.Options{Addr: s.Addr()}))
	for _, e := range []*engine{holder, waiter} {
		if err := e.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		giveBack(t, e.take(t, "other", lasting))
	}
	lease := holder.take(t, "k", lasting)
	defer proxy.LosePushes()()
	granted := make(chan error, 1)
	go func() {
		next, err := waiter.Acquire(t.Context(), core.Policy{Key: "k", Wait: lasting})
		if err == nil {
			err = next.Release(t.Context())
		}
		granted <- err
	}()
	eventually(t, "somebody waits", func() bool {
		st, err := waiter.Inspect(t.Context(), "k")
		return err == nil && st.Waiting == 1
	})
	giveBack(t, lease)
	if err := <-granted; err != nil {
		t.Error(err)
	}
}
