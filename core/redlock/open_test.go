package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

func clients(t *testing.T, addrs ...string) []*redis.Client {
	var out []*redis.Client
	for _, a := range addrs {
		if a == "" {
			out = append(out, nil)
			continue
		}
		out = append(out, newClient(t, a))
	}
	return out
}

func TestOpenRefusesWhatIsNoQuorum(t *testing.T) {
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = sentinel.Close() })
	good := driver.Config{Sink: deafSink{}, StoreTimeout: time.Second}
	tests := []struct {
		name   string
		nodes  []*redis.Client
		opts   []Option
		config driver.Config
		says   string
	}{
		{"no node", nil, nil, good, "0 nodes"},
		{"one node", clients(t, "a:1"), nil, good, "1 nodes"},
		{"two nodes", clients(t, "a:1", "b:1"), nil, good, "an odd number"},
		{"four nodes", clients(t, "a:1", "b:1", "c:1", "d:1"), nil, good, "an odd number"},
		{"a nil client", clients(t, "a:1", "", "c:1"), nil, good, "node 1 is nil"},
		{"the same node twice", clients(t, "a:1", "b:1", "a:1"), nil, good, "two clients for a:1"},
		{"a Sentinel's", append(clients(t, "a:1", "b:1"), sentinel), nil, good, "Sentinel"},
		{"no sink", clients(t, "a:1", "b:1", "c:1"), nil, driver.Config{StoreTimeout: time.Second}, "Sink"},
		{"no time-out", clients(t, "a:1", "b:1", "c:1"), nil, driver.Config{Sink: deafSink{}}, "StoreTimeout"},
		{"a negative bound", clients(t, "a:1", "b:1", "c:1"), []Option{nil, WithNodeTimeout(-1)}, good, "WithNodeTimeout"},
		{"a negative delay", clients(t, "a:1", "b:1", "c:1"), []Option{WithRestartDelay(-1)}, good, "WithRestartDelay"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(tt.nodes, tt.opts...).Open(tt.config)
			if err == nil {
				_ = s.Close(context.Background()) // it has done nothing
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q does not say %q", err, tt.says)
			}
		})
	}
}

func TestStatesFollowWhatNodesAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth([]string{"a:1"})
		h.noteTTL(time.Minute)
		dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
		answered := func(boot int64) reply {
			return reply{answer: answer{status: statusDenied, boot: boot}, sent: time.Now()}
		}
		const bound = time.Second
		steps := []struct {
			reply
			want driver.Condition
		}{
			{answered(5), driver.NodeUp},
			{reply{err: &kit.SilenceError{}}, driver.NodeSlow},
			{reply{err: &kit.SilenceError{}}, driver.NodeSlow},
			{reply{err: &kit.SilenceError{}}, driver.NodeDown},
			{reply{err: &kit.SilenceError{}}, driver.NodeDown},
			{reply{answer: answer{status: statusDenied, boot: 5}, sent: time.Now().Add(-600 * time.Millisecond)}, driver.NodeSlow},
			{answered(5), driver.NodeUp},
			{reply{err: dial}, driver.NodeDown},
			{answered(5), driver.NodeUp}, // it had kept its data
			{reply{err: dial}, driver.NodeDown},
			{answered(0), driver.NodeRestartedEmpty}, // nobody has asked it for a vote since
			{answered(9), driver.NodeRestartedEmpty},
			{reply{err: dial}, driver.NodeDown},
			{reply{sent: time.Now()}, driver.NodeRestartedEmpty}, // a probe says nothing about it
			{answered(9), driver.NodeRestartedEmpty},
		}
		if got := h.states(time.Now())[0]; got != (driver.Node{Addr: "a:1"}) {
			t.Errorf("before anything was asked: %+v", got)
		}
		for i, st := range steps {
			h.noteReply(0, opVote, &st.reply, bound)
			if got := h.states(time.Now())[0]; got.Condition != st.want || got.Since.IsZero() {
				t.Fatalf("step %d: %+v, want %v", i, got, st.want)
			}
		}
		if got := h.states(time.Now().Add(2 * time.Minute))[0].Condition; got != driver.NodeUp {
			t.Errorf("when the largest TTL has passed: %v", got)
		}
		// A leader renews for days, and then the marker runs out, and another vote makes one.
		for i, boot := range []int64{9, 9, 0, 12} {
			time.Sleep(markerLasts)
			h.noteReply(0, []operation{opRenew, opVote}[i/3], &reply{answer: answer{status: statusGranted, boot: boot}, sent: time.Now()}, bound)
			if got := h.states(time.Now())[0].Condition; got != driver.NodeUp {
				t.Errorf("a day later, boot %d: %v", boot, got)
			}
		}
		time.Sleep(time.Hour)
		h.noteReply(0, opRenew, &reply{answer: answer{status: statusLost, boot: 15}, sent: time.Now()}, bound)
		if got := h.states(time.Now())[0].Condition; got != driver.NodeRestartedEmpty {
			t.Errorf("empty an hour after a vote: %v", got)
		}
	})
}

func TestConditionsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		ls := newLines(3)
		d := ls.driver(false, WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
		points := func() map[string]int64 {
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			out := make(map[string]int64)
			for _, scope := range all.ScopeMetrics {
				for _, m := range scope.Metrics {
					for _, p := range m.Data.(metricdata.Gauge[int64]).DataPoints {
						addr, _ := p.Attributes.Value("server.address")
						condition, _ := p.Attributes.Value("lock.node.condition")
						out[fmt.Sprint(m.Name, " ", addr.AsString(), " ", condition.AsString())] = p.Value
					}
				}
			}
			return out
		}
		a, b := open(t, d), open(t, d)
		if got := points(); len(got) != 3*5 || got["lock.node.condition node 1 unknown"] != 1 {
			t.Errorf("before anything was asked: %v", got)
		}
		a.drop(a.take("k", ttl))
		synctest.Wait() // a majority was enough for that
		if got := points(); got["lock.node.condition node 1 up"] != 1 || got["lock.node.condition node 1 unknown"] != 0 {
			t.Errorf("after an acquisition: %v", got)
		}
		for i, p := range []*peer{a, b} {
			if err := p.Close(within(t, patience)); err != nil {
				t.Fatal(err)
			}
			if got := len(points()); (got == 0) != (i == 1) {
				t.Errorf("with %d of 2 sessions closed there are %d points", i+1, got)
			}
		}
	})
}

func TestAddressesOfNodesAreMeasuredByHostAndPort(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.7:6379":   "server.address=10.0.0.7,server.port=6379",
		"[fe80::1]:6380":  "server.address=fe80::1,server.port=6380",
		"/run/redis.sock": "server.address=/run/redis.sock",
		"redis:main":      "server.address=redis:main",
	} {
		set := attribute.NewSet(address(addr)...)
		if got := set.Encoded(attribute.DefaultEncoder()); got != want {
			t.Errorf("%s is measured as %s, want %s", addr, got, want)
		}
	}
}
