package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislock, as in its README for one Redis from 7.0.5: one key, and no notices of
// its own writes. The validity is its default, 5 s, if the scenario asks for no other, renewed.
// It gives up on a key after 20 ms to try the next one, by default; as there is no next
// one it has a second, without which it fails on a slow link or a busy machine.
// https://github.com/redis/rueidis/tree/main/rueidislock
type rueidislockProcess struct{ locks rueidislock.Locker }

func openRueidislock(addr string, s Scenario) (Process, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    s.TTL,
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return nil, err
	}
	return rueidislockProcess{locks}, nil
}

func (p rueidislockProcess) Lock(ctx context.Context, key string) (func() error, error) {
	held, cancel, err := p.locks.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return func() error {
		lost := held.Err()
		cancel() // returns when the key is deleted, and says no more
		if ctx.Err() != nil {
			return nil // the hold ends with it, which is no loss
		}
		return lost
	}, nil
}

func (p rueidislockProcess) Close() { p.locks.Close() }
