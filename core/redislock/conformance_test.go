package redislock_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/endurance"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// runs matches a request that runs the script with that many arguments, by its name or
// its source; 0 is any number.
func runs(s protocol.Script, args int) func(request []byte) bool {
	long := func(request []byte) bool { // with the stream, or without it in a Cluster
		return args == 0 || bytes.HasPrefix(request, fmt.Append(nil, "*", 4+args, "\r\n")) || bytes.HasPrefix(request, fmt.Append(nil, "*", 5+args, "\r\n"))
	}
	return func(request []byte) bool {
		return long(request) && (bytes.Contains(request, []byte(s.SHA)) || bytes.Contains(request, []byte(s.Source)))
	}
}

// takes matches a request for a key that is free as far as the session knows, alone or in a batch.
func takes(request []byte) bool {
	return bytes.Contains(request, []byte("\r\n$3\r\nset\r\n")) || runs(protocol.Take, 0)(request)
}

// deletes matches the release of a key by a server's own command.
func deletes(request []byte) bool {
	return bytes.Contains(request, []byte("\r\ndelex\r\n")) || bytes.Contains(request, []byte("\r\ndelifeq\r\n"))
}

// requests match what a session sends for each kind of request.
var requests = map[drivertest.Op]func(request []byte) bool{
	drivertest.OpAcquire: func(r []byte) bool { return takes(r) || runs(protocol.Acquire, 0)(r) || runs(protocol.End, 8)(r) },
	drivertest.OpRenew:   runs(protocol.Renew, 0),
	drivertest.OpRelease: func(r []byte) bool { return deletes(r) || runs(protocol.End, 3)(r) },
}

func newClient(t testing.TB, o redis.Options) *redis.Client {
	t.Helper()
	c := redis.NewClient(&o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// starter is testservers.Redis, or another server's.
type starter = func(t testing.TB, args ...string) *testservers.Server

// harness is a server of the check's own, reached through a proxy.
func harness(t *testing.T, start starter, o redis.Options, opts ...redislock.Option) *drivertest.Harness {
	server := start(t, "--appendonly", "yes", "--appendfsync", "always")
	proxy := redistest.NewProxy(t, server.Addr())
	direct := newClient(t, redis.Options{Addr: server.Addr()})
	o.Addr = proxy.Addr()
	h := proxied(t, proxy, newClient(t, o), direct, opts...)
	h.Restart = server.Restart
	h.Wipe = func() {
		if err := direct.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	h.Refuse = func() (string, func()) { return redistest.Refuse(t, direct) }
	h.Evict = func() { evict(t, direct) }
	return h
}

// evict has a server drop all its keys, as it does when they are in the way of others.
func evict(t *testing.T, c *redis.Client) {
	t.Helper()
	set := func(name, value string) {
		if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory-policy", "allkeys-random")
	set("maxmemory", "1")
	eventually(t, "all keys being evicted", func() bool {
		err := c.Set(t.Context(), "another", "", 0).Err() // for which there is no room
		return redis.HasErrorPrefix(err, "OOM") && c.DBSize(t.Context()).Val() == 0
	})
	set("maxmemory", "0")
	set("maxmemory-policy", "noeviction")
}

// proxied is one server, reached by a proxy and past it.
func proxied(t *testing.T, proxy *redistest.Proxy, by, direct *redis.Client, opts ...redislock.Option) *drivertest.Harness {
	// The scripts are known to the server, so that a request is one command.
	for _, s := range protocol.Scripts() {
		if err := direct.ScriptLoad(t.Context(), s.Source).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return &drivertest.Harness{
		Driver: redislock.New(by, opts...),
		Peer:   redislock.New(direct, opts...),
		Stall:  proxy.Stall,
		DropReply: func(op drivertest.Op) func() bool {
			return proxy.DropReply(requests[op])
		},
		DelayReplies: proxy.DelayReplies,
		LosePushes:   proxy.LosePushes,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    redis.Options
	}{
		{"as the client comes", redis.Options{}},
		{"RESP2, without retries", redis.Options{Protocol: 2, MaxRetries: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.o.Protocol == 2 {
				t.Skip("the first run of the suite is enough with -short")
			}
			drivertest.Run(t, func(t *testing.T) *drivertest.Harness { return harness(t, testservers.Redis, c.o) })
		})
	}
}

func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	endurance.Run(t, func(t *testing.T) *drivertest.Harness { return harness(t, testservers.Redis, redis.Options{}) })
}
