package main

import (
	"testing"

	"github.com/lockaround/lockaround/core/testservers"
)

// servers start what each library keeps its locks in.
var servers = map[string]func(testing.TB, ...string) *testservers.Server{
	"redislock": testservers.Redis,
	"redsync":   testservers.Redis,
	"etcd":      testservers.Etcd,
}
