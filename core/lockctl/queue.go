package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
)

// queues returns the store of serial queues.
func (s *session) queues() (queue.Store, error) {
	switch {
	case s.db != nil:
		d := sqlqueue.PostgreSQL
		if s.dialect == sqllock.MySQL {
			d = sqlqueue.MySQL
		}
		return sqlqueue.New(s.db, d)
	case s.redis == nil:
		return nil, misuse("serial queues are in Redis (one server, Sentinel, Cluster), PostgreSQL, MySQL or MariaDB, and not in a store of the scheme %s", s.at.scheme)
	case s.queuePrefix == "":
		return nil, misuse("queues in Redis need -queue-prefix, which is the prefix that the service gives to redisqueue.New")
	}
	return redisqueue.New(s.redis, s.queuePrefix, redisqueue.WithShards(s.shards))
}

// openQueue opens a serial queue of the store.
func (s *session) openQueue(name string) (queue.Queue, error) {
	name, err := unquote(name)
	if err != nil {
		return nil, err
	}
	all, err := s.queues()
	if err != nil {
		return nil, usageError(err.Error())
	}
	// Of the rules only those count of what is kept: nothing is appended or begun here.
	q, err := all.Open(name, queue.Rules{Attempts: 1, MaxLength: 1, KeepFor: s.keepFor, KeepCount: s.keepCount})
	if err != nil {
		return nil, usageError(err.Error())
	}
	return q, nil
}

type queueJSON struct {
	Queue    string       `json:"queue"`
	Length   int          `json:"length"`
	OldestMS int64        `json:"oldest_ms"`
	Parked   int          `json:"parked"`
	Keys     []parkedJSON `json:"keys"` // those that are parked, at most a thousand
}

type parkedJSON struct {
	Item     string    `json:"item"`
	Key      string    `json:"key"`
	Sequence string    `json:"sequence"`
	Since    time.Time `json:"since"`
	Left     int       `json:"left"`
}

const maxParked = 1000

// queueList is the command queue ls.
func queueList(ctx context.Context, s *session, args []string) error {
	q, err := s.openQueue(args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	stats, err := q.Stats(ctx)
	if err != nil {
		return s.explained(ctx, err)
	}
	parked, err := q.Parked(ctx, maxParked)
	if err != nil {
		return s.explained(ctx, err)
	}
	out := queueJSON{args[0], stats.Length, stats.Oldest.Milliseconds(), stats.Parked, []parkedJSON{}}
	for _, p := range parked {
		out.Keys = append(out.Keys, parkedJSON{quote(p.ID), quote(p.Key), tokenText(p.Sequence), p.Since.UTC(), p.Left})
	}
	return s.print(out, func() [][]string {
		rows := [][]string{{fmt.Sprintf("items that have not ended: %d, the oldest %v old; parked keys: %d", out.Length, stats.Oldest.Round(time.Second), out.Parked)}}
		if len(out.Keys) > 0 {
			rows = append(rows, []string{"KEY", "PARKED SINCE (UTC)", "ITEMS", "ITEM"})
		}
		for _, p := range out.Keys {
			rows = append(rows, []string{p.Key, p.Since.Format(time.DateTime), strconv.Itoa(p.Left), p.Item})
		}
		return rows
	})
}

type statusJSON struct {
	Item     string     `json:"item"`
	State    string     `json:"state"`
	Sequence string     `json:"sequence"`
	Attempts int        `json:"attempts"`
	Ahead    int        `json:"ahead"`
	Ended    *time.Time `json:"ended,omitempty"`
	Parked   bool       `json:"parked"`
}

// status reads what is known of an item.
func (s *session) status(ctx context.Context, q queue.Queue, arg string) (id string, st statusJSON, err error) {
	if id, err = unquote(arg); err != nil {
		return id, st, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	is, err := q.Status(ctx, id)
	switch {
	case errors.Is(err, queue.ErrUnknown):
		return id, st, notFoundError(fmt.Sprintf("there is no item %s, or it is kept no more", quote(id)))
	case err != nil:
		return id, st, s.explained(ctx, err)
	}
	st = statusJSON{quote(id), is.State.String(), tokenText(is.Sequence), is.Attempts, is.Ahead, nil, is.Parked}
	if !is.Ended.IsZero() {
		ended := is.Ended.UTC()
		st.Ended = &ended
	}
	return id, st, nil
}

func (st statusJSON) rows() [][]string {
	rows := [][]string{
		{"item", st.Item}, {"state", st.State}, {"sequence", st.Sequence}, {"attempts", strconv.Itoa(st.Attempts)}, {"ahead", strconv.Itoa(st.Ahead)},
	}
	if st.Ended != nil {
		rows = append(rows, []string{"ended", st.Ended.Format(time.RFC3339Nano)})
	}
	if st.Parked {
		rows = append(rows, []string{"parked", "its key waits for an operator: resume, drop or repeat the item"})
	}
	return rows
}

// queueStatus is the command queue status.
func queueStatus(ctx context.Context, s *session, args []string) error {
	q, err := s.openQueue(args[0])
	if err != nil {
		return err
	}
	_, st, err := s.status(ctx, q, args[1])
	if err != nil {
		return err
	}
	return s.print(st, st.rows)
}

// The commands for a parked item.
func queueResume(ctx context.Context, s *session, args []string) error {
	return s.resume(ctx, args, queue.GoOn, "Leave it dead, and go on with the next item of its key?")
}

func queueDrop(ctx context.Context, s *session, args []string) error {
	return s.resume(ctx, args, queue.Drop, "Remove it as if it had never been there, and go on with the next item of its key?")
}

func queueRepeat(ctx context.Context, s *session, args []string) error {
	return s.resume(ctx, args, queue.Repeat, "Run it again, with all its attempts?")
}

func (s *session) resume(ctx context.Context, args []string, how queue.Resumption, question string) error {
	q, err := s.openQueue(args[0])
	if err != nil {
		return err
	}
	id, st, err := s.status(ctx, q, args[1])
	if err != nil {
		return err
	}
	if !st.Parked {
		return notFoundError(fmt.Sprintf("the item %s is not the first of a parked key: it is %s", quote(id), st.State))
	}
	if err := s.agreed(ctx, func(w io.Writer) { table(w, st.rows()) }, question); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	switch err := q.Resume(ctx, id, how); {
	case errors.Is(err, queue.ErrNotParked), errors.Is(err, queue.ErrUnknown):
		return notFoundError(fmt.Sprintf("the item %s is not parked any more; somebody else was faster, or an earlier answer was lost", quote(id)))
	case err != nil:
		return s.explained(ctx, err)
	}
	return s.print(struct {
		Item string `json:"item"`
		Done string `json:"done"`
	}{quote(id), how.String()}, func() [][]string { return [][]string{{"The key goes on (" + how.String() + ")."}} })
}
