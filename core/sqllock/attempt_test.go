package sqllock

import (
	"context"
	"testing"
	"time"
)

func TestAnAnswerIsNeverTakenForSilence(t *testing.T) {
	s := &session{timeout: time.Minute, closing: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	defer s.workers.Wait()
	defer s.cancel()
	for i := range 200_000 {
		got, _, err := ask(t.Context(), s, s.closing, func(context.Context, *attempt) (int, error) { return i, nil })
		if got != i || err != nil {
			t.Fatalf("the answer %d came as %d, %v", i, got, err)
		}
	}
}
