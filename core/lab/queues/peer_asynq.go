package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hibiken/asynq"
)

// asynq, as in https://github.com/hibiken/asynq/wiki/Getting-Started.
type asynqQueue struct {
	client *asynq.Client
	server *asynq.Server
	run    Run
	works  bool
}

func openAsynq(s Settings, run Run) (Queue, error) { return openChecking(s, run, 0) }

func openEager(s Settings, run Run) (Queue, error) { return openChecking(s, run, 20*time.Millisecond) }

func openChecking(s Settings, run Run, every time.Duration) (Queue, error) {
	at := asynq.RedisClientOpt{Addr: s.Addr}
	q := &asynqQueue{client: asynq.NewClient(at), run: run}
	if err := q.client.Ping(); err != nil {
		_ = q.client.Close() // err is why
		return nil, err
	}
	q.server = asynq.NewServer(at, asynq.Config{Concurrency: s.Workers, TaskCheckInterval: every, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Millisecond})
	return q, nil
}

func (q *asynqQueue) Enqueue(ctx context.Context, i Item) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	_, err = q.client.EnqueueContext(ctx, asynq.NewTask("item", text))
	return err
}

func (q *asynqQueue) Work() error {
	q.works = true
	return q.server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		var i Item
		if err := json.Unmarshal(t.Payload(), &i); err != nil {
			return err
		}
		return q.run(ctx, i)
	}))
}

func (q *asynqQueue) Close() {
	if q.works {
		q.server.Shutdown()
	}
	_ = q.client.Close() // the process ends
}
