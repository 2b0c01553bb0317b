package redislock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// outOfOrder is a wire to a server that does an ending at once, and an acquisition when it
// is told to.
type outOfOrder struct {
	*slowWire
	ended chan time.Time
}

func (w *outOfOrder) run(ctx context.Context, cmds []*command, replies []reply) {
	if cmds[0].script != &protocol.End {
		w.slowWire.run(ctx, cmds, replies)
		return
	}
	for i := range cmds {
		w.ended <- time.Now()
		replies[i].value = int64(1)
	}
}

func TestOwnerIsEndedAfterTheRequestThatCreatesIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		late time.Duration // the request, after its waiter was cancelled
		want []time.Duration
	}{
		{"at once", 0, []time.Duration{0}},
		{"soon", firstPause - 1, []time.Duration{firstPause - 1}},
		{"late", firstPause + 1, []time.Duration{firstPause, firstPause + 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &outOfOrder{newSlowWire(), make(chan time.Time, 8)}
				c := config{connections: 2, channel: randomChannel, jitter: func() float64 { return 0.5 }}
				s := newSession(c, driver.Config{Sink: quiet{}, StoreTimeout: 3 * time.Second}, w)
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-w.batches
					cancel()
				}()
				id := driver.ID{Key: "k", Owner: driver.Owner{1}}
				if _, err := s.Acquire(ctx, driver.Request{ID: id, TTL: time.Minute, Wait: true}); !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled acquisition: %v", err)
				}
				began := time.Now()
				time.Sleep(tt.late) // of the bubble's clock
				synctest.Wait()
				w.answer <- struct{}{}
				synctest.Wait()
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				close(w.ended)
				var got []time.Duration
				for at := range w.ended {
					got = append(got, at.Sub(began))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("ended after %v, want %v", got, tt.want)
				}
			})
		})
	}
}
