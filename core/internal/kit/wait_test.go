package kit

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if !Sleep(ctx, time.Second/2) || time.Since(begin) != time.Second/2 {
			t.Error("it has not lasted")
		}
		if Sleep(ctx, time.Minute) || time.Since(begin) != time.Second {
			t.Error("it has outlasted its context")
		}
	})
}

func TestSignalsThatNobodyHasReceivedCountAsOne(t *testing.T) {
	s := NewSignal()
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("received twice")
	default:
	}
}

func TestAWorkerWorksWhenItIsWokenAndWhenSomethingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLife("test", "the server")
		begin := time.Now()
		var at []time.Duration
		nexts := []time.Duration{0, time.Second, -1, time.Hour, -1}
		w := NewWorker(l, func() time.Duration {
			next := nexts[len(at)]
			at = append(at, time.Since(begin))
			return next
		})
		w.Wake()
		<-time.After(time.Minute) // by then it has nothing due
		w.Wake()
		<-time.After(time.Minute) // before what is due
		w.Wake()
		<-time.After(24 * time.Hour)
		if err := l.Close(t.Context(), drained, nil); err != nil {
			t.Error(err)
		}
		// The first Wake starts it, and has it look twice.
		if want := []time.Duration{0, 0, 0, time.Minute, 2 * time.Minute}; !slices.Equal(at, want) {
			t.Errorf("worked after %v, want %v", at, want)
		}
	})
}
