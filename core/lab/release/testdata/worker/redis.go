package main

import (
	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
)

// open returns the driver for a server of Redis, and closes its client.
func open(addr string) (d driver.Driver, closeClient func() error, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return redislock.New(client), client.Close, nil
}
