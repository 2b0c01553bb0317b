package sqlqueue

import (
	"context"
	"database/sql"
	"strconv"
	"sync"
	"time"
)

// localListeners tells those who listen in this process, by the same Store, what was done in it.
type localListeners struct {
	mu  sync.Mutex
	all map[*listener]bool
}

// listener hears when keys get due: of the earliest, if there are several.
type listener struct {
	mu   sync.Mutex
	at   time.Time // zero: nothing to tell
	knew chan struct{}
}

func (ls *localListeners) tell(in time.Duration) {
	at := time.Now().Add(in)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.all {
		l.mu.Lock()
		if l.at.IsZero() || at.Before(l.at) {
			l.at = at
		}
		l.mu.Unlock()
		select {
		case l.knew <- struct{}{}:
		default:
		}
	}
}

func (ls *localListeners) listen() (l *listener, stop func()) {
	l = &listener{knew: make(chan struct{}, 1)}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all[l] = true
	return l, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		delete(ls.all, l)
	}
}

// next is what was told last.
func (l *listener) next() (at time.Time, told bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, l.at = l.at, time.Time{}
	return at, !at.IsZero()
}

// notify tells the processes that listen by PostgreSQL, once tx is committed.
func (q *sqlQueue) notify(ctx context.Context, tx *sql.Tx, in int64) error {
	if q.notifications == nil {
		return nil
	}
	_, err := tx.ExecContext(ctx, q.statements.channel, q.channel, strconv.FormatInt(max(in, 0), 10))
	return err
}

// Listen tells of keys that get due, until ctx ends: by notifications, or by looking.
func (q *sqlQueue) Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	if q.notifications == nil {
		return q.look(ctx, up, due)
	}
	err := q.notifications.Listen(ctx, q.channel, up, func(payload string) {
		if in, err := strconv.ParseInt(payload, 10, 64); err == nil && in >= 0 {
			due(0, duration(in))
		}
	})
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return failure("listen", err)
}

// look looks which key is due first, and hears what this process does.
func (q *sqlQueue) look(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	l, stop := q.listeners.listen()
	defer stop()
	up()
	for {
		wait := time.NewTimer(time.Until(time.Unix(0, q.looked.Load()).Add(q.poll)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		case <-l.knew:
			wait.Stop()
			if at, told := l.next(); told {
				due(0, max(time.Until(at), 0))
			}
		case <-wait.C:
			if time.Since(time.Unix(0, q.looked.Load())) < q.poll {
				continue // a worker has looked meanwhile
			}
			now, first, err := q.earliest(ctx, q.db)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return failure("listen", err)
			case first != never:
				due(0, until(now, first))
			}
		}
	}
}
