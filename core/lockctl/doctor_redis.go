package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is one server that doctor looks at.
type redisServer struct {
	findings
	client  *redis.Client
	info    map[string]string
	quorum  bool // it is one of redlock's
	cluster bool
	off     time.Duration // its clock from this machine's
}

// doctorRedis looks at each master.
func (s *session) doctorRedis(ctx context.Context, f findings) {
	var servers []*redisServer
	add := func(c *redis.Client, cluster bool) {
		servers = append(servers, &redisServer{findings: findings{node: c.Options().Addr, all: f.all}, client: c, quorum: s.redlock != nil, cluster: cluster})
	}
	switch c := s.redis.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		first, cancel := context.WithTimeout(ctx, s.timeout)
		err := c.ForEachMaster(first, func(_ context.Context, m *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			add(m, true)
			return nil
		})
		cancel()
		if err != nil {
			f.add(bad, "cluster", s.explained(ctx, err).Error(), "the servers of the Cluster cannot be found", "see that the hosts of the URL are its nodes")
			f.unasked("no server is known", "subscriptions", "keys")
			return
		}
		slices.SortFunc(servers, func(a, b *redisServer) int { return strings.Compare(a.node, b.node) })
	case *redis.Client:
		add(c, false)
		servers[0].node = ""
	}
	for _, c := range s.redlock {
		add(c, false)
	}
	var up []*redisServer
	for _, r := range servers {
		if s.askRedis(ctx, r) {
			up = append(up, r)
		}
	}
	prefix := "la2:"
	if s.redlock != nil {
		prefix = "lr1:"
		clocksApart(f, up)
	}
	if len(up) == 0 {
		f.unasked("no server answers", "subscriptions", "keys")
		return
	}
	s.doctorKeys(ctx, f, up, prefix, len(up) == len(servers))
}

// askRedis looks at how one server is set up. It reports whether it answers.
func (s *session) askRedis(ctx context.Context, r *redisServer) bool {
	first, cancel := context.WithTimeout(ctx, s.timeout)
	text, err := r.client.Info(first).Result()
	cancel()
	if err != nil && !isRefusal(err) {
		l, why := bad, "its keys cannot be locked until it is back"
		if r.quorum {
			l, why = warn, "the majority may not survive the failure of another node"
		}
		r.add(l, "server", s.explained(ctx, err).Error(), why, "start it, or see why it cannot be reached")
		return false
	}
	r.info = make(map[string]string)
	for _, line := range strings.Split(text, "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			r.info[name] = value
		}
	}
	if err != nil {
		r.mute("server", s.reason(err), "permit +info")
	} else {
		r.version()
		r.role()
		r.memory()
		r.connections()
	}
	settings := func(judge func(map[string]string), names ...string) check {
		return check{name: names[0], run: func(ctx context.Context, _ findings) { judge(s.config(ctx, r, names...)) }}
	}
	checks := []check{settings(r.persistence, "appendonly", "appendfsync", "save")}
	if r.info["connected_slaves"] != "" && r.info["connected_slaves"] != "0" {
		checks = append(checks, settings(r.replicas, "min-replicas-to-write", "min-replicas-max-lag"))
	}
	if r.cluster {
		checks = append(checks, settings(r.coverage, "cluster-require-full-coverage"))
	}
	s.each(ctx, r.findings, append(checks, settings(r.buffers, "client-output-buffer-limit"),
		check{name: "rights", run: func(ctx context.Context, _ findings) { s.rights(ctx, r) }},
		check{name: "clock", run: func(ctx context.Context, _ findings) { s.redisClock(ctx, r) }},
		check{name: "protocol", run: func(ctx context.Context, _ findings) { s.protocol(ctx, r) }},
	)...)
	return true
}

func (s *session) redisClock(ctx context.Context, r *redisServer) {
	before := time.Now()
	now, err := r.client.Time(ctx).Result()
	if after := time.Now(); err != nil {
		r.mute("clock", s.reason(err), "permit +time")
	} else {
		r.off = now.Sub(before.Add(after.Sub(before) / 2))
		r.clock(now, before, after)
	}
}

// isRefusal reports whether the server answers, and does not permit a command or know it.
func isRefusal(err error) bool {
	_, answer := err.(redis.Error) //nolint:errorlint // go-redis wraps none
	return answer
}

// config reads settings. It returns nil, and says so, if that is not permitted.
func (s *session) config(ctx context.Context, r *redisServer, names ...string) map[string]string {
	all := make(map[string]string)
	for _, name := range names {
		got, err := r.client.ConfigGet(ctx, name).Result()
		if err != nil {
			r.mute(names[0], s.reason(err), "permit +config|get, or read "+strings.Join(names, ", ")+" by yourself")
			return nil
		}
		all[name] = got[name]
	}
	return all
}

// atLeast reports whether a version is not below another one.
func atLeast(version string, least ...int) bool {
	parts := strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	for i, want := range least {
		if i == len(parts) {
			return false
		}
		if n, _ := strconv.Atoi(parts[i]); n != want {
			return n > want
		}
	}
	return true
}

func (r *redisServer) version() {
	seen := "Redis " + r.info["redis_version"]
	if v := r.info["valkey_version"]; v != "" {
		r.add(good, "version", "Valkey "+v, "", "")
		return
	}
	if r.info["dragonfly_version"] != "" {
		r.add(warn, "version", "Dragonfly "+r.info["dragonfly_version"], "the driver was not tested on it", "try it with drivertest before you rely on it")
		return
	}
	r.judge(atLeast(r.info["redis_version"], 6, 2), bad, "version", seen, "the driver's scripts need 6.2", "use Redis 6.2 or later, or Valkey")
}

func (r *redisServer) role() {
	role := r.info["role"]
	r.judge(role == "master", bad, "role", role, "a replica takes no locks, and what is written to a former master is lost", "give the URL of the master, or of the Sentinels or the Cluster, which name it")
	if n, _ := strconv.Atoi(r.info["connected_slaves"]); n > 0 && r.quorum {
		r.add(warn, "role", fmt.Sprintf("%d replicas of a node of a quorum", n), "a failover brings up a node that may have forgotten its votes", "never promote a replica of such a node; start it empty, with WithRestartDelay")
	}
}

func (r *redisServer) memory() {
	policy, most := r.info["maxmemory_policy"], r.info["maxmemory"]
	seen := fmt.Sprintf("maxmemory-policy %s, maxmemory %s", policy, most)
	const why = "locks have a TTL, and an evicted lock is granted to a second holder while the first one is at work"
	switch {
	case policy == "noeviction":
		r.add(good, "eviction", seen, "", "")
	case most == "0":
		r.add(warn, "eviction", seen, "nothing is evicted yet; as soon as maxmemory is set "+why, "CONFIG SET maxmemory-policy noeviction, and put it into the server's file")
	default:
		r.add(bad, "eviction", seen, why, "CONFIG SET maxmemory-policy noeviction, and put it into the server's file; keep what may be evicted in another server")
	}
}

// connections judges how many more the server accepts.
func (r *redisServer) connections() {
	open, err := strconv.Atoi(r.info["connected_clients"])
	most, err2 := strconv.Atoi(r.info["maxclients"])
	if err != nil || err2 != nil {
		return // a server from before 7.0
	}
	r.judge(open <= most/5*4, warn, "connections", fmt.Sprintf("%d of at most %d", open, most),
		"a process that finds none left cannot lock; each takes as many as its client's pool has, and one for its subscription",
		"CONFIG SET maxclients, or give the clients a smaller PoolSize")
}

func (r *redisServer) persistence(c map[string]string) {
	if c == nil {
		return
	}
	seen := fmt.Sprintf("appendonly %s, appendfsync %s, save %q", c["appendonly"], c["appendfsync"], c["save"])
	do := "CONFIG SET appendonly yes and appendfsync always, if losing locks matters"
	if r.quorum {
		do += "; or give redlock WithRestartDelay, and keep a node that comes back with old data down for the largest TTL"
	}
	switch {
	case c["appendonly"] == "yes" && c["appendfsync"] == "always":
		r.add(good, "persistence", seen, "", "")
	case c["appendonly"] == "yes":
		r.add(warn, "persistence", seen, "a restart may lose the locks of the last second, and with them exclusion until their holders hear of it", do)
	default:
		r.add(warn, "persistence", seen, "a restart loses the locks, and with them exclusion until their holders hear of it", do)
	}
}

func (r *redisServer) replicas(c map[string]string) {
	if c == nil {
		return
	}
	to, lag := c["min-replicas-to-write"], c["min-replicas-max-lag"]
	r.judge(to != "0" && to != "" && lag != "0", warn, "replicas",
		fmt.Sprintf("%s replicas, min-replicas-to-write %s, min-replicas-max-lag %s", r.info["connected_slaves"], to, lag),
		"a master that is cut off goes on granting and renewing while its replica was promoted: two hold one key",
		"CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag to less than the TTLs")
}

func (r *redisServer) coverage(c map[string]string) {
	if c == nil {
		return
	}
	v := c["cluster-require-full-coverage"]
	r.judge(v == "no", warn, "coverage", "cluster-require-full-coverage "+v, "the locks of all shards stop when one shard is gone", "CONFIG SET cluster-require-full-coverage no, if locks of one shard are to outlive another")
}

// leastBuffer is what the pushes of some thousand waiters that are let in at once need.
const leastBuffer = 1 << 20

func (r *redisServer) buffers(c map[string]string) {
	if c == nil {
		return
	}
	words := strings.Fields(c["client-output-buffer-limit"])
	i := slices.Index(words, "pubsub")
	if i < 0 || i+3 >= len(words) {
		r.mute("pushes", "client-output-buffer-limit has no pubsub", "look at it by yourself")
		return
	}
	hard, _ := strconv.Atoi(words[i+1])
	soft, _ := strconv.Atoi(words[i+2])
	small := hard != 0 && hard < leastBuffer || soft != 0 && soft < leastBuffer
	r.judge(!small, warn, "pushes", "client-output-buffer-limit "+strings.Join(words[i:i+4], " "),
		"the server drops subscriptions with that little room when many are told at once; then waiters wait for up to a second more",
		"CONFIG SET client-output-buffer-limit \"pubsub 32mb 8mb 60\", which is the default")
}

// protocol says by which protocol the client and the server talk. Locks work by both.
func (s *session) protocol(ctx context.Context, r *redisServer) {
	hello, err := r.client.Do(ctx, "HELLO").Result()
	if err != nil && !isRefusal(err) {
		r.mute("protocol", s.reason(err), "see that the server is reached")
		return
	}
	seen := "RESP2; pushes come by Pub/Sub on a connection of their own, by RESP3 as well"
	if m, _ := hello.(map[any]any); err == nil && fmt.Sprint(m["proto"]) == "3" {
		seen = "RESP3; pushes come by Pub/Sub on a connection of their own"
	}
	r.add(good, "protocol", seen, "", "")
}

// clocksApart judges the difference between the clocks of a quorum's nodes.
func clocksApart(f findings, servers []*redisServer) {
	if len(servers) < 2 {
		return
	}
	by := func(a, b *redisServer) int { return cmp.Compare(a.off, b.off) }
	apart := slices.MaxFunc(servers, by).off - slices.MinFunc(servers, by).off
	f.judge(apart <= maxClock, warn, "clocks of the nodes", fmt.Sprintf("%v apart", apart.Round(time.Second)),
		"exclusion does not compare them, but a clock that is set forward frees votes too soon, and tokens are made of them",
		"run chrony or ntpd on all nodes, and let it slew rather than step")
}
