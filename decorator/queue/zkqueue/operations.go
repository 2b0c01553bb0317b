package zkqueue

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

// Append adds an item.
func (q *zkQueue) Append(ctx context.Context, key string, n queue.New) (queue.Place, error) {
	if err := n.Validate(key); err != nil {
		return queue.Place{}, err
	}
	if most := q.MaxPayload(); len(n.Payload) > most {
		return queue.Place{}, fmt.Errorf("zkqueue: append: %w: its payload has %d bytes, and jute.maxbuffer of %d leaves room for %d; "+
			"queue a reference, or raise jute.maxbuffer on all servers and say so by WithMaxBuffer", queue.ErrItem, len(n.Payload), q.maxBuffer, most)
	}
	if err := q.time(ctx); err != nil {
		return queue.Place{}, failure("append", err)
	}
	a := &appending{q: q, ctx: ctx, key: key, n: n}
	if _, err := q.on(ctx, "append", queue.Digest(key), false, a.step); err != nil {
		return queue.Place{}, err
	}
	return a.place, nil
}

// appending is an Append.
type appending struct {
	q     *zkQueue
	ctx   context.Context
	key   string
	n     queue.New
	tried bool // to add it as one whose ID is not known
	place queue.Place
}

// step adds the item, unless there is one of its ID.
func (a *appending) step(c *change) error {
	if !c.exists {
		if err := c.seed(a.key); err != nil {
			return err
		}
	}
	full := c.length() >= a.q.rules.MaxLength
	id := a.q.id(c.digest, []byte(a.n.ID))
	store := any(&zk.CreateRequest{Path: id, Data: strconv.AppendInt(nil, c.Sequence+1, 10), Acl: a.q.acl})
	a.place = queue.Place{ID: queue.ItemName(a.key, a.n.ID), Sequence: c.Sequence + 1, Ahead: c.length()}
	if c.exists && (full || a.tried) {
		known, sequence, err := c.find([]byte(a.n.ID))
		switch {
		case err != nil:
			return err
		case known:
			a.place.Sequence, a.place.Ahead = sequence, c.ahead(sequence)
			return nil
		case sequence > 0: // it is kept no more
			c.ops = append(c.ops, &zk.DeleteRequest{Path: a.q.item(c.digest, sequence), Version: -1})
			store = &zk.SetDataRequest{Path: id, Data: strconv.AppendInt(nil, c.Sequence+1, 10), Version: -1}
		}
	}
	if full {
		c.ops = nil
		return queue.ErrFull
	}
	a.tried = true
	if c.length() == 0 {
		if err := a.hasRoom(c); err != nil {
			return err
		}
	}
	c.Sequence++
	added := item{ID: []byte(a.n.ID), Trace: []byte(a.n.Trace), Floor: c.Floor, payload: a.n.Payload}
	c.ops = append(c.ops, &zk.CreateRequest{Path: a.q.item(c.digest, c.Sequence), Data: added.bytes(), Acl: a.q.acl}, store)
	c.writes = true
	if c.length() == 1 {
		c.settle()
		c.tells = true
	}
	return nil
}

// hasRoom refuses the first item of a key if too many keys have some.
func (a *appending) hasRoom(c *change) error {
	shard := a.q.shardOf(c.digest)
	stat, err := a.q.stat(a.ctx, a.q.due(shard))
	if err != nil || stat == nil || stat.NumChildren < a.q.maxKeys() {
		return err
	}
	return fmt.Errorf("%d keys of shard %d have items, and an answer of jute.maxbuffer, %d, cannot name more; "+
		"use WithShards, or raise jute.maxbuffer on all servers and say so by WithMaxBuffer", stat.NumChildren, shard, a.q.maxBuffer)
}

// seed begins the record of a key that has none.
func (c *change) seed(key string) error {
	n, err := c.q.get(c.ctx, c.q.base)
	if err != nil {
		return err
	}
	var floor int64
	if n != nil { // otherwise the queue is created now
		if floor, err = strconv.ParseInt(string(n.data), 10, 64); err != nil {
			return fmt.Errorf("%w: the queue's node has no number", queue.ErrDamaged)
		}
		c.guard = []any{&zk.CheckVersionRequest{Path: c.q.base, Version: n.stat.Version}}
	}
	earliest, _ := c.q.clock.between()
	first := max(earliest*1000, floor+1)
	c.line = &line{Key: []byte(key), Sequence: first - 1, Head: first, Pruned: first - 1, PruneAt: earliest + millis(c.q.rules.KeepFor)/4}
	return nil
}

// find returns the sequence of the item of an ID, 0 if there is none, and whether it is known:
// it may have ended and be kept no more.
func (c *change) find(id []byte) (known bool, sequence int64, err error) {
	n, err := c.q.get(c.ctx, c.q.id(c.digest, id))
	if err != nil || n == nil {
		return false, 0, err
	}
	if sequence, err = strconv.ParseInt(string(n.data), 10, 64); err != nil || sequence > c.Sequence {
		return false, 0, fmt.Errorf("%w: the node of an ID has no number", queue.ErrDamaged)
	}
	if sequence >= c.Head {
		return true, sequence, nil
	}
	i, err := c.item(sequence)
	if err != nil || i == nil {
		return false, 0, err
	}
	earliest, _ := c.q.clock.between()
	return c.keeps(c.q.rules, sequence, c.ended(sequence, i), earliest), sequence, nil
}

// ended is when an item has ended.
func (c *change) ended(sequence int64, i *item) int64 {
	if i.State == "" && sequence <= c.DeadTo {
		return c.DeadAt
	}
	return i.written
}

// Begin begins the first item.
func (q *zkQueue) Begin(ctx context.Context, h queue.Holder) (queue.Step, error) {
	if err := h.Validate(); err != nil {
		return queue.Step{}, err
	}
	return q.step(ctx, "begin", h, func(c *change) error {
		switch {
		case !c.exists:
			return nil
		case h.Token < c.Token || h.Token == c.Token && c.Over && c.Last != run{}:
			return queue.ErrSuperseded
		case h.Token == c.Token && c.Over:
			return nil // it has found nothing
		case h.Token > c.Token:
			c.Token, c.Over, c.Running, c.Last = h.Token, false, false, run{}
		}
		return c.begin(h)
	})
}

// End records how a run has ended.
func (q *zkQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	if err := h.Validate(); err != nil {
		return queue.Step{}, err
	}
	return q.step(ctx, "end", h, func(c *change) error {
		if !c.exists || h.Token != c.Token {
			return queue.ErrSuperseded
		}
		return c.end(h, e)
	})
}

func (q *zkQueue) step(ctx context.Context, doing string, h queue.Holder, f func(*change) error) (queue.Step, error) {
	if err := q.time(ctx); err != nil {
		return queue.Step{}, failure(doing, err)
	}
	c, err := q.on(ctx, doing, queue.Digest(h.Key), false, f)
	if err != nil {
		return queue.Step{}, err
	}
	s := c.step()
	if c.exists && c.overdue() {
		q.prune(ctx, c)
	}
	return s, nil
}

// Resume lets a parked key go on.
func (q *zkQueue) Resume(ctx context.Context, id string, how queue.Resumption) error {
	digest, of, ok := queue.SplitName(id)
	if !ok || !validDigest(digest) {
		return queue.ErrUnknown
	}
	if err := q.time(ctx); err != nil {
		return failure("resume", err)
	}
	_, err := q.on(ctx, "resume", digest, once, func(c *change) error {
		if !c.exists {
			return queue.ErrUnknown
		}
		known, sequence, err := c.find([]byte(of))
		switch {
		case err != nil:
			return err
		case !known:
			return queue.ErrUnknown
		case !c.Parked || sequence != c.Head:
			return queue.ErrNotParked
		}
		c.Parked, c.ParkedAt = false, 0
		switch how {
		case queue.Repeat:
			c.Attempts = 0
		case queue.Drop:
			c.ops = append(c.ops,
				&zk.DeleteRequest{Path: q.item(digest, sequence), Version: -1},
				&zk.DeleteRequest{Path: q.id(digest, c.HeadID), Version: -1})
			c.advance()
		default:
			c.finish(dead)
		}
		c.settle()
		c.writes, c.tells = true, true
		return nil
	})
	return err
}

func validDigest(digest string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(digest)
	return err == nil && len(b) == 16
}

// Status tells of an item.
func (q *zkQueue) Status(ctx context.Context, id string) (queue.Status, error) {
	digest, of, ok := queue.SplitName(id)
	if !ok || !validDigest(digest) {
		return queue.Status{}, queue.ErrUnknown
	}
	if err := q.time(ctx); err != nil {
		return queue.Status{}, failure("status", err)
	}
	var s queue.Status
	_, err := q.on(ctx, "status", digest, false, func(c *change) (err error) {
		if !c.exists {
			return queue.ErrUnknown
		}
		s, err = c.status([]byte(of))
		return err
	})
	if err != nil {
		return queue.Status{}, err
	}
	return s, nil
}

func (c *change) status(id []byte) (queue.Status, error) {
	known, sequence, err := c.find(id)
	if err == nil && !known {
		err = queue.ErrUnknown
	}
	if err != nil {
		return queue.Status{}, err
	}
	s := queue.Status{Sequence: sequence, Ahead: c.ahead(sequence)}
	switch {
	case sequence == c.Head:
		s.Attempts = c.Attempts
		if c.Running {
			s.State = queue.Running
		}
		if c.Parked {
			s.State, s.Parked, s.Ended = queue.GivenUp, true, time.UnixMilli(c.ParkedAt)
		}
	case sequence < c.Head:
		i, err := c.item(sequence)
		if err != nil {
			return queue.Status{}, err
		}
		if i == nil {
			return queue.Status{}, queue.ErrUnknown
		}
		s.State, s.Attempts, s.Ended = queue.GivenUp, i.Attempts, time.UnixMilli(c.ended(sequence, i))
		if i.State == done {
			s.State = queue.Ended
		}
	}
	return s, nil
}

// records reads the records of all keys that have items, or are parked: of those whose entries
// are wanted.
func (q *zkQueue) records(ctx context.Context, wanted func(all []entry) []entry) ([]*change, error) {
	var all []entry
	for shard := range q.shards {
		names, err := q.children(ctx, q.due(shard))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if e, ok := parseEntry(name); ok {
				all = append(all, e)
			}
		}
	}
	all = wanted(all)
	found := make([]*change, len(all))
	errs := make([]error, len(all))
	each(len(all), func(i int) { found[i], errs[i] = q.load(ctx, all[i].digest, nil) })
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Parked returns parked keys, by a read for each of them and one for each shard.
func (q *zkQueue) Parked(ctx context.Context, limit int) ([]queue.Parked, error) {
	found, err := q.records(ctx, func(all []entry) []entry {
		all = slices.DeleteFunc(all, func(e entry) bool { return e.kind != parked })
		slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
		return all[:min(len(all), max(limit, 0))]
	})
	if err != nil {
		return nil, q.failed("parked", err)
	}
	var all []queue.Parked
	for _, c := range found {
		if !c.exists || !c.Parked {
			continue // it has gone on meanwhile
		}
		all = append(all, queue.Parked{
			ID: queue.ItemName(string(c.Key), string(c.HeadID)), Key: string(c.Key), Sequence: c.Head,
			Since: time.UnixMilli(c.ParkedAt), Left: c.length(),
		})
	}
	return all, nil
}

// Stats counts what there is, by two reads for each key that has items.
func (q *zkQueue) Stats(ctx context.Context) (queue.Stats, error) {
	if err := q.time(ctx); err != nil {
		return queue.Stats{}, failure("stats", err)
	}
	found, err := q.records(ctx, func(all []entry) []entry { return all })
	if err != nil {
		return queue.Stats{}, q.failed("stats", err)
	}
	var mu sync.Mutex
	var s queue.Stats
	_, now := q.clock.between()
	each(len(found), func(i int) {
		c := found[i]
		if !c.exists || c.length() == 0 {
			return
		}
		first, failed := q.stat(ctx, q.item(c.digest, c.Head))
		mu.Lock()
		defer mu.Unlock()
		s.Length += c.length()
		if c.Parked {
			s.Parked++
		}
		switch {
		case failed != nil:
			err = failed
		case first != nil:
			s.Oldest = max(s.Oldest, duration(now-first.Ctime), 1)
		}
	})
	if err != nil {
		return queue.Stats{}, failure("stats", err)
	}
	return s, nil
}
