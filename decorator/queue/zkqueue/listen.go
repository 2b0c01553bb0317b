package zkqueue

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// errDeaf ends a Listen whose connection is lost.
var errDeaf = errors.New("the connection is lost, so that watches may be")

// lookAtConn is how often a listener looks whether the connection is there. It sends nothing.
const lookAtConn = time.Second

// Listen tells of keys that get due, by a watch on a node of each shard that is written then.
func (q *zkQueue) Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // of up and due
	var ready, all sync.WaitGroup
	ready.Add(q.shards)
	for shard := range q.shards {
		all.Go(func() {
			first := sync.OnceFunc(ready.Done)
			defer first()
			cancel(q.hear(ctx, shard, first, func(in time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				due(shard, in)
			}))
		})
	}
	ready.Wait()
	if ctx.Err() == nil {
		mu.Lock()
		up()
		mu.Unlock()
	}
	all.Wait()
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return failure("listen", err)
}

// watched is what was read of the node that wakes listeners.
type watched struct {
	data []byte
	stat *zk.Stat
	next <-chan zk.Event
}

// hear tells of one shard, until ctx or the connection ends. A write whose predecessor was not seen
// counts as one of a key that is due now.
func (q *zkQueue) hear(ctx context.Context, shard int, hears func(), due func(in time.Duration)) error {
	look := time.NewTicker(lookAtConn)
	defer look.Stop()
	if err := q.time(ctx); err != nil {
		return err
	}
	for last, heard := int32(0), false; ; heard = true {
		b, err := call(ctx, func() (watched, error) {
			data, stat, next, err := q.conn.GetW(q.wakeup(shard))
			return watched{data, stat, next}, err
		})
		if errors.Is(err, zk.ErrNoNode) {
			if err = q.create(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		switch {
		case !heard:
			hears()
		case b.stat.Version == last+1:
			due(q.until(b.data))
		case b.stat.Version != last:
			due(0)
		}
		last = b.stat.Version
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-b.next:
				if e.Err != nil {
					return e.Err
				}
				waits = false
			case <-look.C:
				if q.conn.State() != zk.StateHasSession {
					return errDeaf
				}
			}
		}
	}
}

// until is in how much time a key is due.
func (q *zkQueue) until(data []byte) time.Duration {
	at, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0
	}
	now, _ := q.clock.between()
	return duration(at - now)
}
