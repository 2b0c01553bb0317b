package sqllock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// owe has the owner ended that was given up. Its place or lease lasts no longer than ttl
// after the request that was given up.
func (s *session) owe(id driver.ID, keep, ttl time.Duration) {
	if id.Key == "" || len(id.Key) > MaxKeyLength {
		return
	}
	s.debts.Owe(id.Owner, kit.Debt{Limit: ttl + 2*s.timeout, End: func(ctx context.Context) error {
		return s.settle(ctx, id.Key, func(d *decision) error {
			_, err := d.end(id.Owner, keep)
			return err
		})
	}})
}

// lookAtQueue has the key's queue looked at, so that its first are granted the room there is.
func (s *session) lookAtQueue(key string) {
	s.Start(func() { // those who wait find out by themselves too
		_ = s.settle(s.Ctx, key, func(*decision) error { return nil })
	})
}

// settle decides about a key, also when the session is being closed.
func (s *session) settle(ctx context.Context, key string, f func(*decision) error) error {
	_, _, err := ask(ctx, s, nil, func(ctx context.Context, a *attempt) (struct{}, error) {
		return struct{}{}, s.decide(ctx, a, key, f)
	})
	return err
}
