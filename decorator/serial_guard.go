package decorator

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/decorator/internal/room"
	"github.com/lockaround/lockaround/decorator/queue"
)

// guardedQueue is a queue whose panics are errors, for goroutines that are not of a caller.
type guardedQueue struct{ queue.Queue }

func (q guardedQueue) Claim(ctx context.Context, r queue.ClaimRequest) (c queue.Claims, err error) {
	defer room.Rescue(&err)
	return q.Queue.Claim(ctx, r)
}

func (q guardedQueue) Begin(ctx context.Context, h queue.Holder) (s queue.Step, err error) {
	defer room.Rescue(&err)
	return q.Queue.Begin(ctx, h)
}

func (q guardedQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (s queue.Step, err error) {
	defer room.Rescue(&err)
	return q.Queue.End(ctx, h, e)
}

func (q guardedQueue) Stats(ctx context.Context) (s queue.Stats, err error) {
	defer room.Rescue(&err)
	return q.Queue.Stats(ctx)
}

func (q guardedQueue) Listen(ctx context.Context, up func(), due func(int, time.Duration)) (err error) {
	defer room.Rescue(&err)
	return q.Queue.Listen(ctx, up, due)
}
