package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisNeeds is what the drivers' documentation says that a user needs, by the prefix of the
// keys. TestRightsAreThoseOfTheDocumentation compares them.
var redisNeeds = map[string]string{
	"la1:": "evalsha eval hmget hget hexists hset hdel pexpire time publish subscribe ping",
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
	case "zadd":
		return []any{key, 1, "x"}
	case "zrange":
		return []any{key, 0, 1}
	}
	return []any{key}
}

// rights tries each command that the driver needs, without executing it.
func (s *session) rights(ctx context.Context, r *redisServer) {
	prefix := "la1:"
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
	key := prefix + "{" + s.namespace + "/doctor}"
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
	match := prefix + "{" + globbed(s.namespace) + "/*"
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
	f.judge(len(all.eternal) == 0, bad, "keys without TTL", looked+some(all.eternal), "a lock's hash always has one; somebody has taken it away, by PERSIST or a restored copy, and it stays for ever", "PEXPIRE them to an hour, once nobody holds them")
	if told {
		f.judge(len(all.deaf) == 0, warn, "holders that hear nothing", looked+some(all.deaf), "their sessions have no subscription: the processes are gone, or reconnect; their keys are free when the TTL is over", "look who it is by lockctl inspect; if the process is gone and the TTL long, lockctl release")
	}
}

// look asks about keys, all at once.
func (all *strangeKeys) look(ctx context.Context, r *redisServer, names []string, channels map[string]bool) error {
	kinds, lasts, holders := make([]*redis.StatusCmd, len(names)), make([]*redis.DurationCmd, len(names)), make([]*redis.SliceCmd, len(names))
	pipe := r.client.Pipeline()
	now := pipe.Time(ctx)
	for i, name := range names {
		kinds[i], lasts[i], holders[i] = pipe.Type(ctx, name), pipe.PTTL(ctx, name), pipe.HMGet(ctx, name, append([]string{"p"}, numbers...)...)
	}
	_, _ = pipe.Exec(ctx) // each has its error
	all.looked += len(names)
	for i, name := range names {
		if err := cmp.Or(kinds[i].Err(), lasts[i].Err(), now.Err()); err != nil {
			return err
		}
		switch kind := kinds[i].Val(); {
		case kind == "none": // it has ended meanwhile
		case kind != "hash":
			all.overwritten = append(all.overwritten, quote(name)+" is a "+kind)
		case noNumber(holders[i].Val()) != "":
			all.overwritten = append(all.overwritten, quote(name)+" is damaged, its "+noNumber(holders[i].Val())+" is no number")
		case lasts[i].Val() == -1: // nanoseconds: what the server says of a key without a TTL
			all.eternal = append(all.eternal, quote(name))
		case !r.quorum && isDeaf(holders[i].Val(), now.Val(), channels):
			all.deaf = append(all.deaf, quote(name))
		}
	}
	return nil
}

// numbers are fields of a lock's hash that are numbers, in either driver.
var numbers = []string{"x", "t", "l", "h", "n", "c", "u", "a", "g"}

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

// globbed is a text for a pattern of SCAN, as the names of keys have it.
func globbed(s string) string {
	return globber.Replace(strings.NewReplacer(`\`, `\\`, "{", `\(`, "}", `\)`).Replace(s))
}

// isDeaf reports whether a key, by its fields p and x, is held by a session that no server has a
// subscription of.
func isDeaf(lock []any, now time.Time, channels map[string]bool) bool {
	if len(lock) < 2 {
		return false
	}
	channel, _ := lock[0].(string)
	end, _ := lock[1].(string)
	ms, err := strconv.ParseInt(end, 10, 64)
	return channel != "" && err == nil && ms > now.UnixMilli() && !channels[channel]
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
