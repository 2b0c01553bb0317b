package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/decorator/internal/redispush"
	"github.com/lockaround/lockaround/decorator/queue"
)

// Store is a [queue.Store] in Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string
	shards int
}

var _ queue.Store = (*Store)(nil)

// Option configures a [Store]. A nil Option changes nothing.
type Option func(*Store)

// WithShards sets how many parts a queue has, from 1, the default, to 64. All processes that use
// a queue have the same number, for as long as it has items. More than one is for a Cluster.
func WithShards(n int) Option { return func(s *Store) { s.shards = n } }

// New returns a store of the queues whose keys in Redis begin with prefix, which has no braces. Stores
// with the same prefix share them. Nothing else may write there. New does no I/O, and the
// client stays the caller's.
//
// The client is a [*redis.Client], of a server or of Sentinels' master, or a
// [*redis.ClusterClient] that does not read from replicas. A [*redis.Ring] is refused: it takes
// keys to another server while theirs is down.
func New(client redis.UniversalClient, prefix string, opts ...Option) (*Store, error) {
	if err := redispush.Usable(client); err != nil {
		return nil, fmt.Errorf("redisqueue: %w", err)
	}
	s := &Store{client: client, prefix: prefix, shards: 1}
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	switch {
	case prefix == "" || strings.ContainsAny(prefix, "{}"):
		return nil, fmt.Errorf(`redisqueue: the prefix is %q; use one without braces that only these queues have, such as "shop:queue:"`, prefix)
	case s.shards < 1 || s.shards > 64:
		return nil, fmt.Errorf("redisqueue: WithShards has %d; use 1 to 64", s.shards)
	}
	return s, nil
}

// Open returns the queue of that name, of 1 to 256 bytes.
func (s *Store) Open(name string, r queue.Rules) (queue.Queue, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if name == "" || len(name) > 256 {
		return nil, fmt.Errorf("redisqueue: the queue's name has %d bytes; 1 to 256 are possible: set Policy.Name", len(name))
	}
	q := &redisQueue{client: s.client, rules: r, channel: s.prefix + "due:" + name}
	for shard := range s.shards {
		// Escaped, names have no braces, and different ones differ.
		q.bases = append(q.bases, fmt.Sprintf("%s{%s/%d}", s.prefix, url.PathEscape(name), shard))
	}
	q.trips = make([]trips, s.shards)
	for i := range q.trips {
		q.trips[i].client, q.trips[i].base = s.client, q.bases[i]
		q.trips[i].common = []any{q.channel, i, micros(r.KeepFor), r.KeepCount, r.MaxLength, micros(r.Spacing), r.Attempts, deaths[r.OnDead]}
	}
	return q, nil
}

// redisQueue is a queue.Queue.
type redisQueue struct {
	client  redis.UniversalClient
	rules   queue.Rules
	bases   []string // of the keys of each shard
	trips   []trips  // by shard
	channel string
}

// Shards returns how many parts the queue has.
func (q *redisQueue) Shards() int { return len(q.bases) }

// shardOf returns the shard of a key, by its digest.
func (q *redisQueue) shardOf(digest string) int {
	return int(crc32.ChecksumIEEE([]byte(digest)) % uint32(len(q.bases)))
}

// run runs a script on a key.
func (q *redisQueue) run(ctx context.Context, script *redis.Script, doing, digest string, args ...any) (reply, error) {
	shard := q.shardOf(digest)
	raw, err := q.trips[shard].run(ctx, script, digest, args)
	if err != nil {
		return reply{}, failure(doing, err)
	}
	switch v := raw.(type) {
	case []any:
		return reply{left: v}, nil
	default:
		return reply{left: []any{v}}, nil
	}
}

// Append adds an item.
func (q *redisQueue) Append(ctx context.Context, key string, n queue.New) (queue.Place, error) {
	if err := n.Validate(key); err != nil {
		return queue.Place{}, err
	}
	payload := n.Payload
	if payload == nil {
		payload = []byte{}
	}
	r, err := q.run(ctx, appendScript, "append", queue.Digest(key), key, n.ID, payload, n.Trace)
	if err != nil {
		return queue.Place{}, err
	}
	if r.int() == 0 && r.err == nil {
		return queue.Place{}, queue.ErrFull
	}
	p := queue.Place{ID: queue.ItemName(key, n.ID), Sequence: r.int(), Ahead: int(r.int())}
	return p, r.failed("append")
}

func (r *reply) failed(doing string) error {
	if r.err != nil {
		return failure(doing, r.err)
	}
	return nil
}

// Claim names keys that are due.
func (q *redisQueue) Claim(ctx context.Context, c queue.ClaimRequest) (queue.Claims, error) {
	if c.Shard < 0 || c.Shard >= len(q.bases) {
		return queue.Claims{}, fmt.Errorf("redisqueue: claim: there is no shard %d of %d", c.Shard, len(q.bases))
	}
	var claims queue.Claims
	var damaged error
	for rest, whole := c, int64(0); ; {
		part := rest
		part.Keep, rest.Keep = cut(rest.Keep)
		part.Return, rest.Return = cut(rest.Return)
		last := len(rest.Keep)+len(rest.Return) == 0
		part.Max = 0
		if last {
			part.Max = min(c.Max, mostKeys) - len(claims.Keys)
		}
		torn, err := q.claim(ctx, part, whole, &claims)
		switch {
		case err != nil:
			return queue.Claims{}, err
		case torn != 0:
			if damaged, err = q.enter(ctx, c.Shard); err != nil {
				return queue.Claims{}, failure("claim: make the index anew", err)
			}
			whole = torn
		case last && damaged != nil:
			return queue.Claims{}, failure("claim: make the index anew", damaged) // once; what it names is due later
		case last:
			return claims, nil
		}
	}
}

// mostKeys is how many keys a script looks at.
const mostKeys = 200

// cut returns as many keys as one script may look at, and the others.
func cut(keys []string) (some, others []string) {
	n := min(len(keys), mostKeys)
	return keys[:n], keys[n:]
}

// claim runs one script, adds the keys that it names, and returns the index that is to be made whole.
func (q *redisQueue) claim(ctx context.Context, c queue.ClaimRequest, whole int64, claims *queue.Claims) (torn int64, err error) {
	args := []any{q.channel, c.Shard, c.Worker, c.Max, micros(c.For), whole, len(c.Keep)}
	for _, key := range c.Keep {
		args = append(args, queue.Digest(key))
	}
	for _, key := range c.Return {
		args = append(args, queue.Digest(key))
	}
	raw, err := claimScript.Run(ctx, q.client, q.index(c.Shard), args...).Slice()
	if err != nil {
		return 0, failure("claim", err)
	}
	r := reply{left: raw}
	claims.Next = max(duration(r.int()), -1)
	torn = r.int()
	for len(r.left) > 0 {
		claims.Keys = append(claims.Keys, r.text())
	}
	return torn, r.failed("claim")
}

// index returns the keys of the index of a shard.
func (q *redisQueue) index(shard int) []string {
	base := q.bases[shard]
	return []string{base + "h", base + "d", base + "o", base + "p"}
}

// enter puts all keys of a shard that any part of its index knows of into the index. It may be repeated,
// and done by several processes at a time. damaged says that keys were left out, for they have lost a part.
func (q *redisQueue) enter(ctx context.Context, shard int) (damaged, err error) {
	t := &q.trips[shard]
	for i, part := range q.index(shard) {
		for cursor := uint64(0); ; {
			var page []string
			if i == 0 {
				page, cursor, err = q.client.HScan(ctx, part, cursor, "n:*", mostKeys).Result()
			} else {
				page, cursor, err = q.client.ZScan(ctx, part, cursor, "", mostKeys).Result()
			}
			if err != nil {
				return nil, err
			}
			var calls []*call
			for ; len(page) > 1; page = page[2:] { // each with its key or its score
				calls = append(calls, &call{script: enterScript, digest: strings.TrimPrefix(page[0], "n:"), ctx: ctx})
			}
			for ; len(calls) > 0; calls = calls[min(len(calls), mostCalls):] {
				some := calls[:min(len(calls), mostCalls)]
				t.carry(some)
				for _, c := range some {
					switch {
					case c.err == nil && c.answer == int64(0) || c.err != nil && strings.Contains(c.err.Error(), "DAMAGED "):
						damaged = queue.ErrDamaged
					case c.err != nil:
						return nil, c.err
					}
				}
			}
			if cursor == 0 {
				break
			}
		}
	}
	return damaged, nil
}

// holder is what the scripts know of who holds the lock.
func (q *redisQueue) holder(h queue.Holder, more ...any) []any {
	return append([]any{digits(h.Token), h.Worker, micros(h.For), micros(h.Grace)}, more...)
}

// Begin begins the first item.
func (q *redisQueue) Begin(ctx context.Context, h queue.Holder) (queue.Step, error) {
	return q.step(ctx, beginScript, "begin", h)
}

// End records how a run has ended.
func (q *redisQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	next := 0
	if e.Next {
		next = 1
	}
	return q.step(ctx, endScript, "end", h, e.Sequence, e.Attempt, outcomes[e.Outcome], micros(e.After), micros(e.Late), next)
}

func (q *redisQueue) step(ctx context.Context, script *redis.Script, doing string, h queue.Holder, more ...any) (queue.Step, error) {
	if err := h.Validate(); err != nil {
		return queue.Step{}, err
	}
	r, err := q.run(ctx, script, doing, queue.Digest(h.Key), q.holder(h, more...)...)
	if err != nil {
		return queue.Step{}, err
	}
	if r.int() == 0 && r.err == nil {
		return queue.Step{}, queue.ErrSuperseded
	}
	s := queue.Step{Left: int(r.int()), Parked: r.int() == 1, Died: int(r.int()), In: duration(r.int())}
	if len(r.left) > 0 {
		s.Item = &queue.Item{Sequence: r.int(), Attempt: int(r.int())}
		s.Item.ID = queue.ItemName(h.Key, r.text())
		s.Item.Payload, s.Item.Trace, s.Item.Age = []byte(r.text()), r.text(), duration(r.int())
	}
	if err := r.failed(doing); err != nil {
		return queue.Step{}, err
	}
	return s, nil
}

// Status tells of an item.
func (q *redisQueue) Status(ctx context.Context, id string) (queue.Status, error) {
	digest, item, ok := queue.SplitName(id)
	if !ok {
		return queue.Status{}, queue.ErrUnknown
	}
	r, err := q.run(ctx, statusScript, "status", digest, item)
	if err != nil {
		return queue.Status{}, err
	}
	if len(r.left) == 0 {
		return queue.Status{}, queue.ErrUnknown
	}
	states := map[string]queue.State{"w": queue.Waiting, "r": queue.Running, "d": queue.Ended, "x": queue.GivenUp}
	state, known := states[r.text()]
	s := queue.Status{State: state, Sequence: r.int(), Attempts: int(r.int()), Ahead: int(r.int())}
	if ended := r.int(); ended > 0 {
		s.Ended = time.UnixMicro(ended)
	}
	s.Parked = r.int() == 1
	if !known {
		r.err = errReply
	}
	return s, r.failed("status")
}

// Resume lets a parked key go on.
func (q *redisQueue) Resume(ctx context.Context, id string, how queue.Resumption) error {
	digest, item, ok := queue.SplitName(id)
	if !ok {
		return queue.ErrUnknown
	}
	r, err := q.run(ctx, resumeScript, "resume", digest, item, resumes[how])
	if err != nil {
		return err
	}
	switch r.int() {
	case 0:
		return queue.ErrNotParked
	case -1:
		return queue.ErrUnknown
	}
	return r.failed("resume")
}

// Stats counts what there is, by one script for each shard.
func (q *redisQueue) Stats(ctx context.Context) (queue.Stats, error) {
	var s queue.Stats
	for _, base := range q.bases {
		raw, err := statsScript.Run(ctx, q.client, []string{base + "h", base + "o", base + "p"}).Slice()
		if err != nil {
			return queue.Stats{}, failure("stats", err)
		}
		r := reply{left: raw}
		s.Length += int(r.int())
		s.Oldest = max(s.Oldest, duration(r.int()))
		s.Parked += int(r.int())
		if err := r.failed("stats"); err != nil {
			return queue.Stats{}, err
		}
	}
	return s, nil
}

// Parked returns parked keys, by two commands for each of them and one for each shard.
func (q *redisQueue) Parked(ctx context.Context, limit int) ([]queue.Parked, error) {
	var all []queue.Parked
	for _, base := range q.bases {
		if len(all) >= limit {
			break
		}
		parked, err := q.client.ZRangeWithScores(ctx, base+"p", 0, int64(limit-len(all)-1)).Result()
		if err != nil {
			return nil, failure("parked", err)
		}
		for _, z := range parked {
			digest, _ := z.Member.(string)
			names, err := q.client.HMGet(ctx, base+"h", "n:"+digest, "p:"+digest).Result()
			left, err2 := q.client.LLen(ctx, base+"q:"+digest).Result()
			if err := errors.Join(err, err2); err != nil {
				return nil, failure("parked", err)
			}
			key, isKey := names[0].(string)
			dead, isParked := names[1].(string)
			sequence, id, _ := strings.Cut(dead, ":")
			if !isKey || !isParked {
				continue // it has gone on meanwhile
			}
			p := queue.Parked{ID: queue.ItemName(key, id), Key: key, Since: time.UnixMicro(int64(z.Score)), Left: int(left)}
			if p.Sequence, err = strconv.ParseInt(sequence, 10, 64); err != nil {
				return nil, failure("parked", errReply)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// Listen hears of keys that get due, on a connection outside the client's pool.
func (q *redisQueue) Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	channel := redispush.Channel{Client: q.client, Name: q.channel, Check: silence}
	err := channel.Listen(ctx, up, func(message string) {
		var shard int
		var in int64
		if _, err := fmt.Sscan(message, &shard, &in); err == nil && in >= 0 {
			due(shard, duration(in))
		}
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return failure("listen", err)
}

// silence is how long a subscription may be silent before it is pinged.
const silence = 5 * time.Second
