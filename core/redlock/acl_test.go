package redlock

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
)

func TestPingNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	const minimal = "resetkeys resetchannels -@all ~lr1:* &lr1:* +evalsha +eval +time +get +set +hmget +hget +hset +hdel " +
		"+zadd +zrem +zrange +zcard +zscore +pexpire +pttl +publish +subscribe +ping"
	var nodes []*redis.Client
	for i, s := range f.servers {
		if answer, err := s.Do(append([]string{"ACL", "SETUSER", "locks", "on", ">secret"}, strings.Fields(minimal)...)...); err != nil {
			t.Fatalf("ACL SETUSER: %s, %v", answer, err)
		}
		c := redis.NewClient(&redis.Options{Addr: f.servers[i].Addr(), Username: "locks", Password: "secret"})
		t.Cleanup(func() { _ = c.Close() })
		nodes = append(nodes, c)
	}
	a := join(t, nodes)
	if err := a.Ping(within(t, patience)); err != nil {
		t.Fatalf("ping with the rights that are asked for: %v", err)
	}
	g := a.take("k", ttl)
	b := join(t, nodes)
	w := b.queue("k", ttl)
	a.drop(g)
	next := <-w
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := a.Oust(within(t, patience), "k", next.Token); err != nil {
		t.Fatal(err)
	}
	for _, s := range f.servers[:2] {
		if answer, err := s.Do("ACL", "SETUSER", "locks", "-zadd"); err != nil {
			t.Fatalf("ACL SETUSER: %s, %v", answer, err)
		}
	}
	err := a.Ping(within(t, patience))
	if refused := new(driver.PermanentError); !errors.As(err, &refused) {
		t.Errorf("ping without the right to ZADD at two of three nodes: %v", err)
	}
	t.Log(err)
}
