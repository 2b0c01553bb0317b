package kit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

func drained(context.Context) bool { return true }

func TestNoCallBeginsAfterClose(t *testing.T) {
	l := NewLife("test", "the server")
	if err := l.Enter(); err != nil {
		t.Fatal(err)
	}
	l.Leave()
	for range 2 {
		if err := l.Close(t.Context(), drained, nil); err != nil {
			t.Error(err)
		}
		if err := l.Enter(); err != driver.ErrClosed {
			t.Errorf("entered with %v", err)
		}
	}
}

func TestCloseEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLife("test", "the server")
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		if err := l.Enter(); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-l.Closing
			if err := context.Cause(l.Open); err != driver.ErrClosed {
				t.Errorf("closing for %v", err)
			}
			time.Sleep(time.Second)
			note("call")
			l.Leave()
		}()
		l.Start(func() {
			<-l.Ctx.Done()
			time.Sleep(time.Second)
			note("goroutine")
		})
		err := l.Close(t.Context(), func(context.Context) bool {
			if l.Ctx.Err() != nil {
				t.Error("the session has ended before the clean-up")
			}
			note("drain")
			return true
		}, func() {
			if l.Ctx.Err() == nil || !l.Start(func() {}) {
				t.Error("at the end the session has not ended, or goroutines have")
			}
			note("end")
		})
		if want := []string{"call", "drain", "end", "goroutine"}; err != nil || !slices.Equal(order, want) {
			t.Errorf("closed in the order %v: %v", order, err)
		}
		if l.Start(func() { t.Error("run after the end") }) {
			t.Error("a goroutine starts after the end")
		}
	})
}

func TestCloseSaysWhatIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name  string
		drain bool
		stuck bool
		want  string
	}{
		{"debts", false, false, "test: session closed before the server had confirmed the end of all leases"},
		{"a goroutine", true, true, "test: session closed with work left\ncontext deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLife("test", "the server")
				if tt.stuck {
					l.Start(func() { time.Sleep(time.Hour) }) // deaf to the session's end
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := l.Close(ctx, func(context.Context) bool { return tt.drain }, nil)
				if err == nil || err.Error() != tt.want {
					t.Errorf("closed with %q, want %q", err, tt.want)
				}
				if l.Ctx.Err() == nil {
					t.Error("the session goes on")
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestCloseEndsWhatIsUnderWayWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLife("test", "the server")
		if err := l.Enter(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { // deaf to Closing
			defer close(ended)
			<-l.Ctx.Done()
			l.Leave()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if err := l.Close(ctx, drained, nil); err == nil {
			t.Error("a call was left, and Close says nothing")
		}
		<-ended
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("the call has ended after %v", took)
		}
	})
}

func TestSilenceIsATimeout(t *testing.T) {
	last := errors.New("reset")
	for _, tt := range []struct {
		err  *SilenceError
		want string
	}{
		{&SilenceError{After: time.Second}, "no answer within 1s"},
		{&SilenceError{Store: "test", After: time.Second}, "test: no answer within 1s"},
		{&SilenceError{Store: "test", After: time.Second, Last: last}, "test: no success within 1s: reset"},
	} {
		if got := tt.err.Error(); got != tt.want || !tt.err.Timeout() {
			t.Errorf("%q, want %q", got, tt.want)
		}
		if errors.Is(tt.err, last) != (tt.err.Last != nil) {
			t.Errorf("%v does not say what it came of", tt.err)
		}
	}
}

func TestFinal(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{driver.ErrClosed, true},
		{errors.Join(errors.New("so"), &driver.PermanentError{Err: errors.New("no")}), true},
		{driver.ErrNotHeld, false},
		{&SilenceError{After: time.Second}, false},
	} {
		if got := Final(tt.err); got != tt.want {
			t.Errorf("%v is final: %t", tt.err, got)
		}
	}
}
