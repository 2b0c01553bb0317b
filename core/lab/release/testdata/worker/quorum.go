package main

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redlock"
)

// open returns the driver for several servers of Redis, whose addresses have commas between them,
// and leaves its clients to the end of the process.
func open(addrs string) (d driver.Driver, closeClient func() error, err error) {
	var clients []*redis.Client
	for addr := range strings.SplitSeq(addrs, ",") {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return redlock.New(clients), func() error { return nil }, nil
}
