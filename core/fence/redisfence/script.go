package redisfence

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/fence"
)

// The script is made of the user's source between these two. The source becomes a
// function with KEYS and ARGV of its own before any local variable is declared, so
// that it sees none of the fence's, and begins on the first line, so that Redis's
// errors name its lines as they are.
//
// Numbers are compared as strings of one length, since Lua's numbers are exact only
// up to 2^53. The answer is a pair, so that nothing that the source returns, or fails
// with, can be taken for a refusal.
const (
	before = `local body = function(KEYS, ARGV) `
	after  = `
end
local largest = redis.call('GET', KEYS[1])
if largest and (#largest ~= 19 or string.find(largest, '%D')) then
  return {'foreign'}
end
if largest and largest > ARGV[1] then
  return {'stale'}
end
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 3, #ARGV do args[i - 2] = ARGV[i] end
return {'ran', (body(keys, args))}
`
	digits = 19 // of the largest int64
)

// Script is Lua that runs only under a token that is not stale. It is immutable and
// safe for concurrent use.
type Script struct {
	script *redis.Script
	config config
}

// NewScript returns a Script that runs src, which is written as for EVAL: it finds in
// KEYS and ARGV what [Script.Run] is given, and nothing of the fence. It has to be a
// whole script by itself, and cannot use the variable argument "...". One that is
// malformed fails when it is first run, and then nothing of it runs. A first line such
// as "#!lua flags=…" is kept; the fence writes, so that no-writes cannot be among the
// flags.
//
// NewScript panics if an option cannot work. Nil options do nothing.
func NewScript(src string, o ...Option) *Script {
	shebang := ""
	if strings.HasPrefix(src, "#!") {
		line, rest, _ := strings.Cut(src, "\n")
		shebang, src = line+"\n", rest
	}
	s := &Script{config: newConfig(o)}
	// The SHA-1 by which Redis names a script protects nothing.
	fips140.WithoutEnforcement(func() { s.script = redis.NewScript(shebang + before + src + after) })
	return s
}

// Run checks t and runs the script in one atomic step. Either t is admitted, its
// number kept, and the script run; or none of this, and the error is around
// [fence.ErrStale], or that of [fence.Token.Validate]. It
// uses EVALSHA, and EVAL when the server does not know the script.
//
// The result and any other error are those of the script itself, as EVAL would give
// them; a script that returns nil gives redis.Nil. After an error of the script the
// token stays admitted, and what the script had written before stays written. After an
// error of the connection nobody knows whether the script ran. SCRIPT KILL does not
// end a script that does not come to its end, since the fence has written.
//
// The client is none that queues, as a pipeline does, and no redis.Ring, which would
// put the fence elsewhere whenever a shard is down.
func (s *Script) Run(ctx context.Context, c redis.Scripter, t fence.Token, keys []string, args ...any) *redis.Cmd {
	reply := redis.NewCmd(ctx)
	if err := s.check(c, t); err != nil {
		reply.SetErr(err)
		return reply
	}
	number := fmt.Sprintf("%0*d", digits, t.Number)
	expiry := strconv.FormatInt(s.config.expiry.Milliseconds(), 10)
	raw := s.script.Run(ctx, c, append([]string{s.config.key(t.Key)}, keys...), append([]any{number, expiry}, args...)...)
	if err := raw.Err(); err != nil {
		reply.SetErr(err)
		return reply
	}
	return unpack(reply, raw.Val())
}

func (s *Script) check(c redis.Scripter, t fence.Token) error {
	switch c.(type) {
	case nil:
		return errors.New("redisfence: the client is nil; give Run the one of the Redis that the resource is in")
	case redis.Pipeliner:
		return errors.New("redisfence: a pipeline has no reply to look into; give Run a client")
	case *redis.Ring:
		return errors.New("redisfence: a redis.Ring moves keys when a shard is down, and a fence would be forgotten; use a client of one server or a Cluster")
	}
	return t.Validate()
}

// unpack makes reply what the script has answered.
func unpack(reply *redis.Cmd, raw any) *redis.Cmd {
	pair, _ := raw.([]any)
	verdict := ""
	if len(pair) > 0 {
		verdict, _ = pair[0].(string)
	}
	switch verdict {
	case "ran":
		var val any // Lua cuts a list at a nil
		if len(pair) > 1 {
			val = pair[1]
		}
		switch val := val.(type) {
		case nil:
			reply.SetErr(redis.Nil)
		case error:
			reply.SetErr(val)
		default:
			reply.SetVal(val)
		}
	case "stale":
		reply.SetErr(fmt.Errorf("redisfence: %w: another holder was here since; take the lock anew", fence.ErrStale))
	case "foreign":
		reply.SetErr(errors.New("redisfence: the fence's key holds something else; give fences a key that nothing else writes, see WithKey"))
	default:
		reply.SetErr(errors.New("redisfence: the server's reply is none of the script's"))
	}
	return reply
}
