package main

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

// Item is what is queued.
type Item struct {
	Key string `json:"key"`
	N   int    `json:"n"` // of the items of its key, in order
}

// Run is called for each item.
type Run func(ctx context.Context, i Item) error

// Settings are what a user knows of his queue.
type Settings struct {
	Addr    string        `json:"addr"`
	Workers int           `json:"workers"`       // items that a process runs at a time
	TTL     time.Duration `json:"ttl,omitempty"` // of what keeps others from an item; 0 is each peer's default
}

// Open is how one process gets what it has of a peer.
type Open = func(Settings, Run) (Queue, error)

// Queue is what one process has of a peer. It is for many goroutines.
type Queue interface {
	Enqueue(ctx context.Context, i Item) error
	// Work returns when the process works.
	Work() error
	Close()
}

const asynqModule = "github.com/hibiken/asynq"

var peers = []Peer{
	{
		Name: contest.Subject, Module: "github.com/lockaround/lockaround", Open: openLockaround,
		Note: "`serial.Must` over `redisqueue` and `redislock`, as it is by default: the items of a key in order, one at a time; an item is idle for at most as long as the lease of a worker that has died",
	},
	{
		Name: "asynq", Module: asynqModule, Open: openAsynq,
		Note: "one queue, as it is by default but for its log: items in no order, as many at a time as there are workers; an idle server looks once a second, and a lease is 30 s, looked at once a minute",
	},
	{
		Name: "asynq, 20 ms", Module: asynqModule, Open: openEager, Extra: true,
		Note: "the same with `TaskCheckInterval` of 20 ms, which its documentation warns of; only where an idle server waits for items",
	},
}
