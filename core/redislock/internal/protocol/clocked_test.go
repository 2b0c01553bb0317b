package protocol_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

// clocked is a real server whose scripts take the time from the test and leave
// their messages to it.
type clocked struct {
	*store
	key string
	at  time.Time
}

func startClocked(t testing.TB) *clocked {
	t.Helper()
	return &clocked{store: start(t), key: protocol.Key("stock:7"), at: time.UnixMicro(1_700_000_000_123_456)}
}

func (c *clocked) call(script protocol.Script, args []any) any {
	c.t.Helper()
	c.do("DEL", "clock")
	c.do("RPUSH", "clock", c.at.Unix(), c.at.Nanosecond()/1000)
	v, err := c.rdb.Eval(context.Background(), withClock(script.Source), []string{c.key, protocol.Stream(c.key)}, args...).Result()
	if err != nil && err != redis.Nil {
		c.t.Fatalf("%s: %v", script.Name, err)
	}
	return v
}

// ask is what most acquisitions of these tests have in common.
func ask(n int) protocol.AcquireArgs {
	return protocol.AcquireArgs{Owner: owner(n), Channel: channel(n), Length: 10 * second, PlaceTTL: 3 * second, Create: true, Wait: true}
}

func channel(n int) string { o := owner(n); return "push:" + string(o[:7]) }

func again(n int) protocol.AcquireArgs {
	a := ask(n)
	a.Create = false
	return a
}

func (c *clocked) acquire(a protocol.AcquireArgs, want protocol.Status) protocol.AcquireReply {
	c.t.Helper()
	r, err := protocol.ParseAcquire(c.call(protocol.Acquire, a.Args()))
	if err != nil {
		c.t.Fatal(err)
	}
	if r.Status != want {
		c.t.Fatalf("acquire is %v, want %v", r.Status, want)
	}
	return r
}

func (c *clocked) end(a protocol.EndArgs, want protocol.Status) protocol.EndReply {
	c.t.Helper()
	r, err := protocol.ParseEnd(c.call(protocol.End, a.Args()))
	if err != nil {
		c.t.Fatal(err)
	}
	if r.Status != want {
		c.t.Fatalf("end is %v, want %v", r.Status, want)
	}
	return r
}

func (c *clocked) renew(n int, ttl time.Duration, want protocol.Status) protocol.RenewReply {
	c.t.Helper()
	r, err := protocol.ParseRenew(c.call(protocol.Renew, protocol.RenewArgs{Owner: owner(n), Token: 1, TTL: ttl}.Args()))
	if err != nil {
		c.t.Fatal(err)
	}
	if r.Status != want {
		c.t.Fatalf("renew is %v, want %v", r.Status, want)
	}
	return r
}

func (c *clocked) inspect() protocol.InspectReply {
	c.t.Helper()
	r, err := protocol.ParseInspect(c.call(protocol.Inspect, nil))
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// take reports whether an owner has the key by Take.
func (c *clocked) take(n int) bool {
	c.t.Helper()
	return c.call(protocol.Take, protocol.TakeArgs{Owner: owner(n), Channel: channel(n), Length: 10 * second}.Args()) != nil
}

// there reports whether the server has the key.
func (c *clocked) there() bool { c.t.Helper(); return !reflect.DeepEqual(c.now(), reference.State{}) }

func (c *clocked) now() reference.State {
	c.t.Helper()
	return at(decode(c.t, c.call(protocol.Script{Name: "dump", Source: dump}, nil)), c.at)
}

// at returns a state whose lease ends so many ms after that moment, if it is a string's.
func at(st reference.State, t time.Time) reference.State {
	if st.Thin {
		h := &st.Holders[0]
		h.Expires += t.UnixMilli()
		if st.Token = h.Token; st.Token == 0 {
			st.Token = (h.Expires - h.Length) * 1000
		}
	}
	return st
}

// pushes returns what was published since the last time, by channel.
func (c *clocked) pushes() map[string][]protocol.Push {
	c.t.Helper()
	flat, err := c.rdb.LRange(context.Background(), "published", 0, -1).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	c.do("DEL", "published")
	out := make(map[string][]protocol.Push)
	for i := 0; i+1 < len(flat); i += 2 {
		p, err := protocol.ParsePush(flat[i+1])
		if err != nil {
			c.t.Fatal(err)
		}
		out[flat[i]] = append(out[flat[i]], p)
	}
	return out
}

// onlyPush returns the one message since the last time.
func (c *clocked) onlyPush(channel string) protocol.Push {
	c.t.Helper()
	all := c.pushes()
	if len(all) != 1 || len(all[channel]) != 1 {
		c.t.Fatalf("published %v, want one message on %s", all, channel)
	}
	return all[channel][0]
}

func (c *clocked) noPush() {
	c.t.Helper()
	if all := c.pushes(); len(all) != 0 {
		c.t.Fatalf("published %v, want nothing", all)
	}
}

func (c *clocked) noPushTo(channel string) {
	c.t.Helper()
	if got := c.pushes()[channel]; len(got) != 0 {
		c.t.Errorf("pushed %v to an owner that learns from its reply", got)
	}
}

func next(n int) *protocol.Next {
	return &protocol.Next{Owner: owner(n), Channel: channel(n), Length: 10 * second, PlaceTTL: 3 * second}
}
