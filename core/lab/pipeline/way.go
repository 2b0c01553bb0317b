package main

import (
	"context"
	"crypto/sha1" // it is how Redis names scripts
	_ "embed"
	"encoding/hex"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

//go:embed script.lua
var source string

//go:embed script_many.lua
var sourceMany string

// The scripts' names in Redis.
var digest, digestMany = digestOf(source), digestOf(sourceMany)

func digestOf(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

const ttl = "30000"

// way is one way to run the script.
type way struct {
	name string
	open func(addr string) (sender, error)
}

// sender runs the script for many goroutines at once.
type sender struct {
	// run returns what the script says its owner is.
	run   func(ctx context.Context, key, owner string) (string, error)
	close func() error
}

// ways: the numbers are batches under way at once.
var ways = []way{
	{"straight", straight(0)},
	{"straight, 64 connections", straight(64)},
	auto("AutoPipeline", nil),
	auto("AutoPipeline 2", &redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 2, Unordered: true}),
	auto("AutoPipeline 4", &redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 4, Unordered: true}),
	auto("AutoPipeline 10", &redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 10, Unordered: true}),
	auto("AutoPipeline full duplex", &redis.AutoPipelineOptions{MaxBatchSize: 300, FullDuplex: true}),
	{"worker 1", batching(work, 1, 0)},
	{"worker 2", batching(work, 2, 0)},
	{"worker 4", batching(work, 4, 0)},
	{"worker 1, yields", batching(work, 1, 1)},
	{"worker 2, yields", batching(work, 2, 1)},
	{"leader 1", batching(lead, 1, 0)},
	{"leader 2", batching(lead, 2, 0)},
	{"leader 4", batching(lead, 4, 0)},
	{"leader 8", batching(lead, 8, 0)},
	{"leader 1, yields", batching(lead, 1, 1)},
	{"leader 2, yields", batching(lead, 2, 1)},
	{"leader 4, yields", batching(lead, 4, 1)},
	{"leader 1, joint", joint(lead, 1, 0)},
	{"leader 2, joint", joint(lead, 2, 0)},
	{"leader 1, joint, yields", joint(lead, 1, 1)},
	{"rueidis", pipelined},
}

// straight sends each at once, on a connection of its own as long as there is one: 10 for
// each core if not said otherwise.
func straight(connections int) func(string) (sender, error) {
	return func(addr string) (sender, error) {
		client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: connections})
		return sender{func(ctx context.Context, key, owner string) (string, error) {
			return owned(client.EvalSha(ctx, digest, []string{key}, owner, ttl))
		}, client.Close}, nil
	}
}

// auto is go-redis's own, whose calls return with the reply. nil is what it recommends
// for that; the other options are those of its own benchmark.
func auto(name string, options *redis.AutoPipelineOptions) way {
	return way{name, func(addr string) (sender, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		auto, err := client.AutoPipelineWithOptions(options)
		if err != nil {
			return sender{}, err
		}
		return sender{func(ctx context.Context, key, owner string) (string, error) {
			return owned(auto.EvalSha(ctx, digest, []string{key}, owner, ttl))
		}, client.Close}, nil
	}}
}

// batching collects what comes while others are under way.
func batching(carry func(*batcher, *call), width, yields int) func(string) (sender, error) {
	return collect(carry, width, yields, pipelineOf)
}

// joint sends a batch as one script for all of its keys.
func joint(carry func(*batcher, *call), width, yields int) func(string) (sender, error) {
	return collect(carry, width, yields, scriptOf)
}

func collect(carry func(*batcher, *call), width, yields int, send func(*redis.Client, []*call)) func(string) (sender, error) {
	return func(addr string) (sender, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		b := &batcher{client: client, width: width, yields: yields, send: send}
		return sender{func(ctx context.Context, key, owner string) (string, error) {
			c := &call{key: key, owner: owner, cmd: redis.NewCmd(ctx, "evalsha", digest, 1, key, owner, ttl), wake: make(chan []*call, 1)}
			carry(b, c)
			return owned(c.cmd)
		}, client.Close}, nil
	}
}

func owned(cmd *redis.Cmd) (string, error) {
	reply, err := cmd.Slice()
	if err != nil {
		return "", err
	}
	owner, ok := reply[0].(string)
	if !ok {
		return "", fmt.Errorf("the script said %v", reply)
	}
	return owner, nil
}

// pipelined is another client library, which writes all commands to one connection.
func pipelined(addr string) (sender, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return sender{}, err
	}
	run := func(ctx context.Context, key, owner string) (string, error) {
		reply, err := client.Do(ctx, client.B().Evalsha().Sha1(digest).Numkeys(1).Key(key).Arg(owner, ttl).Build()).ToArray()
		if err != nil {
			return "", err
		}
		return reply[0].ToString()
	}
	return sender{run, func() error { client.Close(); return nil }}, nil
}
