package sale

import (
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/testservers"
)

func TestPlaceIsWhatItsListSays(t *testing.T) {
	for _, tc := range []struct {
		list, master string
		kind         kind
		says         string
	}{
		{"", "", nowhere, "in this process"},
		{"a:1", "", single, "in Redis at a:1"},
		{"[::1]:1", "", single, "in Redis at [::1]:1"},
		{"a:1,", "", cluster, "in the Redis Cluster at a:1"},
		{"a:1,b:2", "", cluster, "in the Redis Cluster at a:1, b:2"},
		{"a:1,b:2,", "", cluster, "in the Redis Cluster at a:1, b:2"},
		{"a:1", "m", sentinel, `in the Redis "m" of the Sentinels at a:1`},
		{"a:1,b:2", "m", sentinel, `in the Redis "m" of the Sentinels at a:1, b:2`},
	} {
		p, err := parsePlace(tc.list, tc.master)
		if err != nil {
			t.Errorf("-redis %q -sentinel %q: %v", tc.list, tc.master, err)
			continue
		}
		if p.kind != tc.kind || p.String() != tc.says {
			t.Errorf("-redis %q -sentinel %q: kind %d, %s; want %d, %s", tc.list, tc.master, p.kind, p, tc.kind, tc.says)
		}
	}
}

func TestProcessesSellExactlyTheStock(t *testing.T) {
	for _, tc := range []struct {
		name  string
		place func(*testing.T) []string
	}{
		{"on one server", func(t *testing.T) []string { return []string{"-redis", testservers.Redis(t).Addr()} }},
		{"on a Cluster", func(t *testing.T) []string {
			return []string{"-redis", testservers.RedisCluster(t, 1, 0).Addrs()[0] + ","}
		}},
		{"by a Sentinel", func(t *testing.T) []string {
			return []string{"-redis", testservers.RedisSentinel(t, 0).Addrs()[0], "-sentinel", testservers.MasterName}
		}},
		{"with locks elsewhere", func(t *testing.T) []string { return []string{"-store", "redis", "-at", testservers.Redis(t).Addr()} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append(tc.place(t), "-processes", "2", "-buyers", "120", "-units", "40")
			out, status := program(t, args...)
			if status != 0 {
				t.Fatalf("exit status %d:\n%s", status, out)
			}
			row := rowOf(t, out, "with locks")
			if row[0] != "40" || row[1] != "0" || row[2] != "80" || row[3] != "0" {
				t.Errorf("sold, oversold, refused and left are %v, want 40, 0, 80 and 0:\n%s", row[:4], out)
			}
			if trips := row[len(row)-1]; trips == "0" {
				t.Errorf("the locks cost no round trip:\n%s", out)
			}
		})
	}
}

func TestAServerOfAnotherKindIsNamed(t *testing.T) {
	one, gone := testservers.Redis(t), testservers.Redis(t)
	gone.Kill()
	plain, absent := one.Addr(), gone.Addr()
	node := testservers.Redis(t, "--cluster-enabled", "yes").Addr()
	watcher := testservers.Watch(t, one, 0).Addr()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"node of a Cluster", []string{"-redis", node}, "it is a node of a Cluster; say so with a comma: -redis " + node + ","},
		{"Sentinel", []string{"-redis", watcher}, watcher + " is a Sentinel; name the master that it watches: -redis " + watcher + " -sentinel NAME"},
		{"list of Sentinels", []string{"-redis", absent + "," + watcher}, "-redis " + absent + "," + watcher + " -sentinel NAME"},
		{"no Cluster", []string{"-redis", plain + ","}, plain + " is not in a Cluster; name one server, without a comma: -redis " + plain},
		{"no Sentinel", []string{"-redis", plain, "-sentinel", testservers.MasterName}, plain + " is no Sentinel"},
		{"unknown master", []string{"-redis", watcher, "-sentinel", "nobody"}, "the Sentinel at " + watcher + ` watches no master "nobody"`},
		{"nobody", []string{"-redis", absent}, "open the stock in Redis at " + absent},
		{"nobody with locks", []string{"-store", "redis", "-at", absent, "-buyers", "3"}, "the locks in redis: "},
		{"no address", []string{"-store", "redis", "-at", "h"}, "host:port is right"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs strings.Builder
			if status := run(t.Context(), both, tc.args, nil, &out, &errs); status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			if !strings.Contains(errs.String(), tc.want) {
				t.Errorf("said %q, want %q in it", errs.String(), tc.want)
			}
		})
	}
}
