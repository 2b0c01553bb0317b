package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisNeeds is what the drivers' documentation says that a user needs, by the prefix of the
// keys. TestRightsAreThoseOfTheDocumentation compares them.
var redisNeeds = map[string]string{
	"la2:": "set xadd evalsha eval get del exists pttl pexpire hmget hexists hset hdel time publish subscribe ping",
	"lr1:": "evalsha eval time get set hmget hget hset hdel zadd zrem zrange zcard zscore pexpire pttl publish subscribe ping",
}

// arguments are those with which a command is tried, dry, on a key, which is also a channel.
func arguments(command, key string) []any {
	switch command {
	case "time", "ping":
		return nil
	case "evalsha", "eval":
		return []any{"return 1", 1, key}
	case "hmget", "hget", "hexists", "hdel", "zrem", "zscore", "publish":
		return []any{key, "x"}
	case "hset":
		return []any{key, "x", "x"}
	case "set", "pexpire":
		return []any{key, 1}
	case "xadd":
		return []any{key, "*", "x", "x"}
	case "zadd":
		return []any{key, 1, "x"}
	case "zrange":
		return []any{key, 0, 1}
	}
	return []any{key}
}

// rights tries each command that the driver needs, without executing it.
func (s *session) rights(ctx context.Context, r *redisServer) {
	prefix := "la2:"
	if r.quorum {
		prefix = "lr1:"
	}
	user := s.user
	if user == "" {
		var err error
		if user, err = r.client.Do(ctx, "ACL", "WHOAMI").Text(); err != nil {
			r.mute("rights", s.reason(err), "permit +acl|whoami and +acl|dryrun; what the URL's own user may do is in the finding \"driver\"")
			return
		}
	}
	key := prefix + "{00}:" + s.namespace + "/doctor"
	if r.quorum {
		key = prefix + "l:" + s.namespace + "/doctor"
	}
	var missing []string
	for _, command := range strings.Fields(redisNeeds[prefix]) {
		answer, err := r.client.Do(ctx, append([]any{"ACL", "DRYRUN", user, command}, arguments(command, key)...)...).Text()
		switch {
		case err != nil:
			r.mute("rights", s.reason(err), "permit +acl|dryrun, which Redis has from 7.0 on; what the URL's own user may do is in the finding \"driver\"")
			return
		case answer != "OK":
			missing = append(missing, command)
		}
	}
	r.judge(len(missing) == 0, bad, "rights", fmt.Sprintf("the user %s, on keys and channels %s*: %s", quote(user), prefix, either(missing, "lacks "+strings.Join(missing, ", "), "all")),
		"what is denied half-way through a script leaves it half done", fmt.Sprintf("ACL SETUSER %s ~%s* &%s* +%s", quote(user), prefix, prefix, strings.Join(missing, " +")))
}

func either(some []string, a, b string) string {
	if len(some) > 0 {
		return a
	}
	return b
}

// mostKeys is how many keys doctor looks at.
const mostKeys = 2000

// strangeKeys are the keys that are not as they should be.
type strangeKeys struct {
	looked                     int
	overwritten, eternal, deaf []string
}

// doctorKeys looks at the keys of the namespace, and at the subscriptions of those who use them:
// at all servers, or at those that are up.
func (s *session) doctorKeys(ctx context.Context, f findings, servers []*redisServer, prefix string, all bool) {
	var channels map[string]bool
	told := false
	s.each(ctx, f,
		check{name: "subscriptions", run: func(ctx context.Context, f findings) { channels, told = s.channels(ctx, f, servers, prefix) }},
		check{name: "delivery", run: func(ctx context.Context, f findings) { s.delivery(ctx, f, servers, prefix) }},
		check{name: "keys", long: true, run: func(ctx context.Context, f findings) {
			if told && !all && s.redlock == nil {
				f.unasked("a subscription may be at a server that does not answer", "holders that hear nothing")
			}
			s.lookAtKeys(ctx, f, servers, prefix, channels, told && all && s.redlock == nil)
		}},
	)
}

// lookAtKeys looks at the keys of the namespace.
func (s *session) lookAtKeys(ctx context.Context, f findings, servers []*redisServer, prefix string, channels map[string]bool, told bool) {
	match := prefix + "{??}:" + globber.Replace(s.namespace) + "/*"
	if s.redlock != nil {
		match = prefix + "l:" + globber.Replace(s.namespace) + "/*"
	}
	var all strangeKeys
	for _, r := range servers {
		for cursor := uint64(0); ; {
			page, cancel := context.WithTimeout(ctx, s.timeout)
			names, next, err := r.client.Scan(page, cursor, match, 500).Result()
			if err == nil {
				err = all.look(page, r, names, channels)
			}
			cancel()
			if err != nil {
				r.mute("keys", s.reason(err), "permit +scan, +type and +pttl")
				return
			}
			if cursor = next; cursor == 0 || all.looked >= mostKeys {
				break
			}
		}
	}
	looked := fmt.Sprintf("of the %d that were looked at: ", all.looked)
	f.judge(len(all.overwritten) == 0, bad, "overwritten keys", looked+some(all.overwritten), "nobody can take these locks", "find out who writes there, and delete them")
	f.judge(len(all.eternal) == 0, bad, "keys without TTL", looked+some(all.eternal), "a lock's key always has one; somebody has taken it away, by PERSIST or a restored copy, and it stays for ever", "PEXPIRE them to an hour, once nobody holds them")
	if told {
		f.judge(len(all.deaf) == 0, warn, "holders that hear nothing", looked+some(all.deaf), "their sessions have no subscription: the processes are gone, or reconnect; their keys are free when the TTL is over", "look who it is by lockctl inspect; if the process is gone and the TTL long, lockctl release")
	}
}

// look asks about keys, all at once.
func (all *strangeKeys) look(ctx context.Context, r *redisServer, names []string, channels map[string]bool) error {
	kinds, lasts := make([]*redis.StatusCmd, len(names)), make([]*redis.DurationCmd, len(names))
	values, hashes := make([]*redis.StringCmd, len(names)), make([]*redis.SliceCmd, len(names))
	pipe := r.client.Pipeline()
	now := pipe.Time(ctx)
	for i, name := range names {
		kinds[i], lasts[i] = pipe.Type(ctx, name), pipe.PTTL(ctx, name)
		values[i], hashes[i] = pipe.Get(ctx, name), pipe.HMGet(ctx, name, append([]string{"s"}, numbers...)...)
	}
	_, _ = pipe.Exec(ctx) // each has its error
	all.looked += len(names)
	for i, name := range names {
		if err := cmp.Or(kinds[i].Err(), lasts[i].Err(), now.Err()); err != nil {
			return err
		}
		held := holderOf(values[i].Val())
		first, damaged := "", noNumber(hashes[i].Val())
		if lock := hashes[i].Val(); len(lock) > 0 {
			first, _ = lock[0].(string)
		}
		switch kind := kinds[i].Val(); {
		case kind == "none": // it has ended meanwhile
		case kind == "string" && !r.quorum && held.channel != "":
			held.ends = now.Val().Add(lasts[i].Val())
		case kind != "hash":
			all.overwritten = append(all.overwritten, quote(name)+" is a "+kind)
			continue
		case damaged != "":
			all.overwritten = append(all.overwritten, quote(name)+" is damaged, its "+damaged+" is no number")
			continue
		default:
			held = holderOf(first)
		}
		switch {
		case kinds[i].Val() == "none":
		case lasts[i].Val() == -1: // nanoseconds: what the server says of a key without a TTL
			all.eternal = append(all.eternal, quote(name))
		case !r.quorum && held.channel != "" && held.ends.After(now.Val()) && !channels[held.channel]:
			all.deaf = append(all.deaf, quote(name))
		}
	}
	return nil
}

// numbers are fields of a lock's hash that are numbers, in either driver.
var numbers = []string{"x", "t", "l", "h", "n", "c", "u", "y", "a", "g"}

// noNumber names the first of them that is none.
func noNumber(lock []any) string {
	for i, name := range numbers {
		if i+1 < len(lock) && lock[i+1] != nil {
			if _, err := strconv.ParseFloat(fmt.Sprint(lock[i+1]), 64); err != nil {
				return name
			}
		}
	}
	return ""
}

// some names a few of several.
func some(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	text := strings.Join(all[:min(5, len(all))], ", ")
	if more := len(all) - 5; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

var globber = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// holder is one who holds a key.
type holder struct {
	channel string    // of its session; empty for a key that is kept
	ends    time.Time // unless it is renewed
}

var holderFields = regexp.MustCompile(`^\d+:\d+:(\d+):\d+:(\d+):`)

// holderOf reads the first holder in a text, as package redislock writes it: 16 bytes, numbers, and a
// channel of so many bytes.
func holderOf(text string) (h holder) {
	const owner = 16
	if len(text) < owner {
		return h
	}
	text = text[owner:]
	m := holderFields.FindStringSubmatch(text)
	if m == nil {
		return h
	}
	ms, err := strconv.ParseInt(m[1], 10, 64)
	n, err2 := strconv.Atoi(m[2])
	if text = text[len(m[0]):]; err != nil || err2 != nil || n > len(text) {
		return h
	}
	return holder{text[:n], time.UnixMilli(ms)}
}

// silence is how long a subscription of a lock's session never is: sessions ping theirs.
const silence = time.Minute

// channels returns the channels that somebody has subscribed to. The servers of a Cluster know
// of their own alone.
func (s *session) channels(ctx context.Context, f findings, servers []*redisServer, prefix string) (all map[string]bool, told bool) {
	all = make(map[string]bool)
	silent := 0
	for _, r := range servers {
		names, err := r.client.PubSubChannels(ctx, prefix+"[^/]*").Result() // without those of topics
		if err != nil {
			r.mute("subscriptions", s.reason(err), "permit +pubsub|channels")
			return nil, false
		}
		for _, name := range names {
			all[name] = true
		}
		n, err := silentSubscribers(ctx, r.client)
		if err != nil {
			r.mute("subscriptions", s.reason(err), "permit +client|list")
			return all, true
		}
		silent += n
	}
	own := ""
	if len(all) > 0 && (*f.all)[0].Level == good { // what the driver says
		own = ", this one among them"
	}
	f.judge(silent == 0, warn, "subscriptions", fmt.Sprintf("%d sessions have subscribed%s; %d subscriptions are silent for over %v", len(all), own, silent, silence),
		"sessions of locks ping their subscriptions every few seconds, so these are of processes that are gone or stopped, or of other users of Pub/Sub",
		"CLIENT LIST TYPE pubsub shows them; CONFIG SET tcp-keepalive 60 ends those whose machine is gone")
	return all, true
}

// delivery finds out whether what one server publishes reaches who has subscribed at another: the drivers
// tell waiters like that, and sessions subscribe at one server of a Cluster.
func (s *session) delivery(ctx context.Context, f findings, servers []*redisServer, prefix string) {
	for i, at := range servers {
		from := servers
		if s.redlock != nil {
			from = servers[i : i+1]
		}
		heard, err := s.hears(ctx, at, from, prefix+rand.Text())
		if err != nil {
			at.mute("delivery", s.reason(err), "permit +publish and +subscribe on channels "+prefix+"*")
			continue
		}
		at.judge(heard == len(from), warn, "delivery", fmt.Sprintf("%d of %d messages reached a subscriber here", heard, len(from)),
			"a caller that waits for a key is not told that it is free, and looks again after up to a second",
			"ask for an endpoint whose Pub/Sub reaches all clients and all nodes; see that no proxy on the way drops messages")
	}
}

// hears subscribes at one server, has others publish, and returns how many of them were heard.
func (s *session) hears(ctx context.Context, at *redisServer, from []*redisServer, channel string) (n int, err error) {
	sub := at.client.Subscribe(ctx, channel)
	defer sub.Close() //nolint:errcheck // nothing is lost
	if _, err := sub.Receive(ctx); err != nil {
		return 0, err
	}
	for _, r := range from {
		if err := r.client.Publish(ctx, channel, r.client.Options().Addr).Err(); err != nil {
			return 0, err
		}
	}
	patience, cancel := context.WithTimeout(ctx, min(s.timeout/2, time.Second))
	defer cancel()
	for ; n < len(from); n++ {
		if _, err := sub.ReceiveMessage(patience); err != nil {
			break
		}
	}
	return n, nil
}

// silentSubscribers counts the subscribers that have not sent anything for long.
func silentSubscribers(ctx context.Context, c *redis.Client) (n int, err error) {
	text, err := c.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	for _, line := range strings.Split(text, "\n") {
		for _, field := range strings.Fields(line) {
			if idle, found := strings.CutPrefix(field, "idle="); found {
				if seconds, _ := strconv.Atoi(idle); time.Duration(seconds)*time.Second > silence {
					n++
				}
			}
		}
	}
	return n, err
}
