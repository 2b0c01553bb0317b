package main

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/testservers"
)

// BenchmarkHit is a Get of a value that is there, by as many callers as there are cores: for a
// profile of what the scenario hits shows.
func BenchmarkHit(b *testing.B) {
	testservers.Need(b, "redis-server")
	redis, err := server.Start(b.Context(), server.Redis)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := redis.Close(); err != nil {
			b.Error(err)
		}
	}()
	source := newSource(redis.Addr)
	defer source.close()
	for _, p := range peers {
		b.Run(p.Name, func(b *testing.B) {
			process, err := p.Open(Settings{Addr: redis.Addr, Expiry: time.Hour}, source.load)
			if err != nil {
				b.Fatal(err)
			}
			defer process.Close()
			key := "hit-" + p.Name
			if _, err := process.Get(b.Context(), key); err != nil {
				b.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // subscriptions
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := process.Get(b.Context(), key); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
