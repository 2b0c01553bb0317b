package redislock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// calledRole makes a child a service whose route takes the lock that its caller may hold.
const calledRole = "called service"

// beCalled plays the role: it prints its URL, and serves until its input ends.
func beCalled(told string) error {
	var addr string
	if err := json.Unmarshal([]byte(told), &addr); err != nil {
		return err
	}
	locks, err := engineOfAChild(addr)
	if err != nil {
		return err
	}
	lock := httplock.Lock(locks, core.Policy{Key: "order:{path.id}", Wait: 2 * time.Second})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httplock.ReadTokens(lock(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))))
	server := httptest.NewServer(mux)
	defer server.Close()
	fmt.Println(server.URL)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test has ended
	return nil
}

// TestServiceThatCallsAnotherUnderTheSameLockIsToldAtOnce has two processes and a real server
// between them: one holds a key and posts to the other, whose route takes the same key.
func TestServiceThatCallsAnotherUnderTheSameLockIsToldAtOnce(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	other, err := child.Start(t, calledRole, server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	url, err := other.Out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: httplock.SendTokens(nil)}
	defer client.CloseIdleConnections()
	post := func(ctx context.Context, id string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(url)+"/orders/"+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	locks := newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	lingers := core.Policy{Key: "order:7", Linger: time.Minute}
	var over context.Context
	if err := locks.Do(t.Context(), lingers, func(ctx context.Context) error {
		over = ctx
		if got := post(ctx, "7"); got != http.StatusInternalServerError {
			t.Errorf("the key of the caller: %d", got)
		}
		if got := post(ctx, "8"); got != http.StatusNoContent {
			t.Errorf("another key: %d", got)
		}
		if got := post(t.Context(), "7"); got != http.StatusConflict {
			t.Errorf("a request of somebody else, which waits and gives up: %d", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := post(context.WithoutCancel(over), "7"); got != http.StatusNoContent {
		t.Errorf("when the hold is over: %d", got)
	}
}
