package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestMessageStaysInItsDatabase opens sessions on two databases of one server, whose channels are the server's.
func TestMessageStaysInItsDatabase(t *testing.T) {
	server := testservers.Redis(t)
	var sessions []driver.Gossip
	var heard []chan string
	for db := range 2 {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: db})
		t.Cleanup(func() { _ = client.Close() })
		s, err := redislock.New(client).Open(driver.Config{StoreTimeout: 3 * time.Second, Sink: struct{ driver.Sink }{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(t.Context()) })
		up, all := make(chan struct{}, 8), make(chan string, 8)
		stop := s.(driver.Gossip).Listen("shop", driver.Listener{Listening: func() { up <- struct{}{} }, Heard: func(m []byte) { all <- string(m) }})
		t.Cleanup(stop)
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-up
		sessions, heard = append(sessions, s.(driver.Gossip)), append(heard, all)
	}
	// A server sends each subscriber what is published in one order.
	for db, message := range []string{"of 0", "of 1"} {
		if err := sessions[db].Tell(t.Context(), "shop", []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	if err := sessions[0].Tell(t.Context(), "shop", []byte("of 0, too")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		db      int
		message string
	}{{0, "of 0"}, {0, "of 0, too"}, {1, "of 1"}} {
		if got := <-heard[want.db]; got != want.message {
			t.Errorf("database %d heard %q, want %q", want.db, got, want.message)
		}
	}
}
