package main

import (
	"context"
	"runtime"
	"sync"

	"github.com/redis/go-redis/v9"
)

// batcher sends a call at once if fewer than width batches are under way; those that come
// meanwhile travel together in the next batch. Nothing waits for a batch to grow.
type batcher struct {
	client *redis.Client
	width  int
	yields int // how often others may run before a batch is taken from the queue

	// send returns when each call of a batch has its reply or an error.
	send func(*redis.Client, []*call)

	mu     sync.Mutex
	queue  []*call
	active int
}

// maxBatch bounds how much travels together.
const maxBatch = 128

type call struct {
	key, owner string

	cmd  *redis.Cmd
	wake chan []*call // nil once it is served; or the batch that it is to send, itself first
}

// work has goroutines of the batcher's own send the batches, one after the other as long
// as there are any.
func work(b *batcher, c *call) {
	b.mu.Lock()
	b.queue = append(b.queue, c)
	if b.active < b.width {
		b.active++
		go func() {
			for batch := b.take(); batch != nil; batch = b.next() {
				b.send(b.client, batch)
				for _, c := range batch {
					c.wake <- nil
				}
			}
		}()
	}
	b.mu.Unlock()
	<-c.wake
}

// lead has callers send the batches: one that finds a place sends its own call, and at its
// end gives the place to the first of those who wait, with a batch of them.
func lead(b *batcher, c *call) {
	b.mu.Lock()
	batch := []*call{c}
	if b.active < b.width {
		b.active++
		b.mu.Unlock()
	} else {
		b.queue = append(b.queue, c)
		b.mu.Unlock()
		if batch = <-c.wake; batch == nil {
			return
		}
	}
	b.send(b.client, batch)
	if b.yields > 0 { // those who are served may be in the next batch
		serve(batch)
		batch = batch[:1]
	}
	if next := b.next(); next != nil {
		next[0].wake <- next
	}
	serve(batch)
}

// serve wakes all but the leader.
func serve(batch []*call) {
	for _, c := range batch[1:] {
		c.wake <- nil
	}
}

// next lets others run first, if that is wanted.
func (b *batcher) next() []*call {
	for range b.yields {
		runtime.Gosched()
	}
	return b.take()
}

// take returns nil, and gives up the place, if nobody waits.
func (b *batcher) take() []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.queue), maxBatch)
	if n == 0 {
		b.active--
		return nil
	}
	batch := b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	return batch
}

func pipelineOf(client *redis.Client, batch []*call) {
	ctx := context.Background()
	if len(batch) == 1 {
		_ = client.Process(ctx, batch[0].cmd) // the command has it
		return
	}
	pipe := client.Pipeline()
	for _, c := range batch {
		_ = pipe.Process(ctx, c.cmd) // it is sent by Exec
	}
	_, _ = pipe.Exec(ctx) // each command has its own
}

func scriptOf(client *redis.Client, batch []*call) {
	ctx := context.Background()
	if len(batch) == 1 {
		_ = client.Process(ctx, batch[0].cmd) // the command has it
		return
	}
	keys, args := make([]string, len(batch)), make([]any, len(batch)+1)
	for i, c := range batch {
		keys[i], args[i] = c.key, c.owner
	}
	args[len(batch)] = ttl
	replies, err := client.EvalSha(ctx, digestMany, keys, args...).Slice()
	for i, c := range batch {
		if err != nil {
			c.cmd.SetErr(err)
			continue
		}
		c.cmd.SetVal(replies[i])
	}
}
