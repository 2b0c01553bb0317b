package zkqueue

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

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
