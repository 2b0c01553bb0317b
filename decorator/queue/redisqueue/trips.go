package redisqueue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// width is how many round trips to a near server a queue has under way, before calls share one.
	width = 2
	// near is less than the least time in which a server of another place answers. There, a call that
	// waits for others loses time. Here, most of the work of both ends is that of the trips.
	near = time.Millisecond
	// mostCalls and mostBytes bound what shares a trip, so that the first is not kept waiting
	// by the others.
	mostCalls = 16
	mostBytes = 64 << 10
)

// trips carries calls to one shard. A call goes at once and alone while few are under way, or
// if it is large, or the server is not near. The others share the next trip. No call waits to fill one.
type trips struct {
	client redis.UniversalClient
	base   string // of the shard's keys
	common []any  // arguments of all calls

	mu       sync.Mutex
	underWay int
	waiting  []*call
	fastest  time.Duration // of all answers to a call that went alone; 0: there was none
}

// call is an operation on a key.
type call struct {
	script *redis.Script
	digest string
	args   []any
	ctx    context.Context
	answer any
	err    error
	done   chan struct{} // closed when answer and err are there
}

// run runs an operation. If ctx ends, it may be done or not.
func (t *trips) run(ctx context.Context, script *redis.Script, digest string, args []any) (any, error) {
	c := &call{script: script, digest: digest, args: args, ctx: ctx}
	t.mu.Lock()
	if t.underWay >= width && t.fastest > 0 && t.fastest < near && c.size() < mostBytes {
		c.done = make(chan struct{})
		t.waiting = append(t.waiting, c)
		t.mu.Unlock()
		select {
		case <-c.done:
			return c.answer, c.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	t.underWay++
	t.mu.Unlock()
	alone := []*call{c}
	asked := time.Now()
	keys, arguments := t.request(alone)
	t.deliver(alone, script.Run(ctx, t.client, keys, arguments...))
	took := time.Since(asked)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.err == nil && (t.fastest == 0 || took < t.fastest) {
		t.fastest = took
	}
	t.ended()
	return c.answer, c.err
}

// ended notes that a trip is back, and lets the calls that wait go. t.mu is held.
func (t *trips) ended() {
	if len(t.waiting) == 0 || t.underWay > width {
		t.underWay--
	} else {
		go t.share()
	}
}

// size is that of the payload.
func (c *call) size() (n int) {
	for _, a := range c.args {
		if b, ok := a.([]byte); ok {
			n += len(b)
		}
	}
	return n
}

// share carries the calls that wait, and those that come meanwhile.
func (t *trips) share() {
	for {
		t.mu.Lock()
		calls := t.next()
		if len(calls) == 0 {
			t.underWay--
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		t.carry(calls)
	}
}

// next takes calls of those that wait, but those that nobody waits for. t.mu is held.
func (t *trips) next() (calls []*call) {
	size := 0
	for len(t.waiting) > 0 && len(calls) < mostCalls && size < mostBytes {
		c := t.waiting[0]
		t.waiting[0], t.waiting = nil, t.waiting[1:]
		if c.ctx.Err() == nil {
			calls, size = append(calls, c), size+c.size()
		}
	}
	return calls
}

// carry runs calls in one round trip. It ends at the latest of their deadlines.
func (t *trips) carry(calls []*call) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if at, ok := latest(calls); ok {
		ctx, cancel = context.WithDeadline(ctx, at)
	}
	defer cancel()
	byScript := make(map[*redis.Script][]*call)
	for _, c := range calls {
		byScript[c.script] = append(byScript[c.script], c)
	}
	pipe := t.client.Pipeline()
	replies := make(map[*redis.Script]*redis.Cmd)
	for script, some := range byScript {
		keys, args := t.request(some)
		replies[script] = script.EvalSha(ctx, pipe, keys, args...)
	}
	_, _ = pipe.Exec(ctx) // each reply has its error
	for script, some := range byScript {
		if redis.HasErrorPrefix(replies[script].Err(), "NOSCRIPT") {
			keys, args := t.request(some)
			replies[script] = script.Run(ctx, t.client, keys, args...)
		}
		t.deliver(some, replies[script])
	}
}

// request returns the keys and the arguments of a script that runs calls.
func (t *trips) request(calls []*call) (keys []string, args []any) {
	keys = append(keys, t.base+"h", t.base+"d", t.base+"o", t.base+"p")
	args = append(append(args, 1+len(calls[0].args)), t.common...)
	for _, c := range calls {
		keys = append(keys, t.base+"k:"+c.digest, t.base+"q:"+c.digest, t.base+"i:"+c.digest)
		args = append(append(args, c.digest), c.args...)
	}
	return keys, args
}

// deliver gives each call its answer.
func (t *trips) deliver(calls []*call, reply *redis.Cmd) {
	answers, err := reply.Slice()
	if err == nil && len(answers) != len(calls) {
		err = errReply
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.answer = answers[i]
			c.err, _ = answers[i].(error)
		}
		if c.done != nil {
			close(c.done)
		}
	}
}

// latest is the last of the calls' deadlines, if each has one.
func latest(calls []*call) (at time.Time, all bool) {
	for _, c := range calls {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return time.Time{}, false
		}
		if deadline.After(at) {
			at = deadline
		}
	}
	return at, true
}
