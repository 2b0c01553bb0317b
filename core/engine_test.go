package core_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// open returns an engine on d that the end of the test closes. It waits for the store
// longer than a busy machine stops a test.

func open(t testing.TB, d driver.Driver, o ...core.Option) *core.Engine {
	t.Helper()
	return openUsual(t, d, append([]core.Option{core.WithStoreTimeout(time.Minute)}, o...)...)
}

// openUsual is open with the usual time-out of the store.
func openUsual(t testing.TB, d driver.Driver, o ...core.Option) *core.Engine {
	t.Helper()
	o = append([]core.Option{core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler))}, o...)
	e, err := core.New(d, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// mustAcquire takes a lock or ends the test.

func mustAcquire(t testing.TB, e *core.Engine, p core.Policy) *core.Lease {
	t.Helper()
	l, err := e.Acquire(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mustBe fails the test unless err is want, and an *Error, or both are nil.

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
	var typed *core.Error
	if err != nil && !errors.As(err, &typed) {
		t.Errorf("error %T is no *core.Error", err)
	}
}

func TestOneHolderAtATimeAndTokensRise(t *testing.T) {
	d := memlock.New()
	engines := []*core.Engine{open(t, d), open(t, d), open(t, d)}
	var inside atomic.Int32
	var last int64
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			for range 200 {
				err := engines[i%3].Do(t.Context(), core.Policy{Key: "k", Wait: core.Forever}, func(ctx context.Context) error {
					if inside.Add(1) != 1 {
						t.Error("two holders at once")
					}
					l, ok := core.LeaseFrom(ctx)
					if !ok {
						t.Error("no lease in the context")
					} else if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					} else {
						last = l.Token()
					}
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestLeaseLivesAsLongAsItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		l, err := e.Acquire(ctx, core.Policy{Key: "k", TTL: time.Second})
		mustBe(t, err, nil)
		cancel() // bounds the acquisition only
		time.Sleep(time.Minute)
		mustBe(t, l.Err(), nil)
		mustBe(t, l.Check(t.Context()), nil)
		_, err = other.Acquire(t.Context(), core.Policy{Key: "k"})
		mustBe(t, err, core.ErrBusy)
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

func TestReleaseTwiceIsAnError(t *testing.T) {
	e := open(t, memlock.New())
	l := mustAcquire(t, e, core.Policy{Key: "k"})
	mustBe(t, l.Err(), nil)
	mustBe(t, l.Release(t.Context()), nil)
	select {
	case <-l.Done():
	default:
		t.Error("Done is open after Release")
	}
	for _, err := range []error{l.Release(t.Context()), l.Err(), l.Check(t.Context())} {
		mustBe(t, err, core.ErrNotHeld)
	}
}

func TestHoldEndsEarlyForItsReason(t *testing.T) {
	tests := []struct {
		name   string
		policy core.Policy
		cause  func(t *testing.T, d *memlock.Driver, e *core.Engine)
		want   error
		after  time.Duration
	}{
		{"lost at the store", core.Policy{}, func(_ *testing.T, d *memlock.Driver, _ *core.Engine) { d.Expire("test/k") }, core.ErrLost, 0},
		{"store out of reach", core.Policy{TTL: 10 * time.Second}, func(_ *testing.T, d *memlock.Driver, _ *core.Engine) { d.Fail(errors.New("down")) }, core.ErrLost, 10*time.Second - 102*time.Millisecond},
		{"not renewed", core.Policy{TTL: 10 * time.Second, NoRenew: true}, nil, core.ErrLost, 10*time.Second - 102*time.Millisecond},
		{"held too long", core.Policy{MaxHold: 4 * time.Second}, nil, core.ErrMaxHold, 4 * time.Second},
		{"closed", core.Policy{}, func(_ *testing.T, _ *memlock.Driver, e *core.Engine) { _ = e.Close() }, core.ErrClosed, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				e := open(t, d)
				tt.policy.Key = "k"
				own := errors.New("own")
				for _, result := range []error{nil, own} {
					var start time.Time
					err := e.Do(t.Context(), tt.policy, func(ctx context.Context) error {
						start = time.Now()
						if tt.cause != nil {
							go tt.cause(t, d, e)
						}
						<-ctx.Done()
						if cause := context.Cause(ctx); cause != tt.want {
							t.Errorf("the context ended for %v, want %v", cause, tt.want)
						}
						return result
					})
					if errors.Is(err, core.ErrClosed) && tt.want == core.ErrClosed && result == own {
						break // the engine is closed: nothing ran
					}
					if result != nil && err != result {
						t.Errorf("got %v, want the function's own error", err)
					}
					if result == nil {
						mustBe(t, err, tt.want)
					}
					if took := time.Since(start); took != tt.after {
						t.Errorf("ended after %v, want %v", took, tt.after)
					}
					d.Fail(nil)
					synctest.Wait()
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

func TestPanicAndGoexitRelease(t *testing.T) {
	e := open(t, memlock.New())
	p := core.Policy{Key: "k"}
	func() {
		defer func() {
			if r := recover(); r != "out" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = e.Do(t.Context(), p, func(context.Context) error { panic("out") })
	}()
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = e.Do(t.Context(), p, func(context.Context) error { runtime.Goexit(); return nil })
	})
	wg.Wait()
	mustBe(t, e.Do(t.Context(), p, func(context.Context) error { return nil }), nil)
}

func TestStoreOutOfReachIsUnavailableInTime(t *testing.T) {
	tests := []struct {
		name string
		wait time.Duration
		max  time.Duration
	}{
		{"no wait", 0, 3 * time.Second},
		{"wait", 2 * time.Second, 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				down := errors.New("secret address")
				d.Fail(down)
				e := open(t, d)
				mustBe(t, e.Ping(t.Context()), core.ErrUnavailable)
				start := time.Now()
				_, err := e.Acquire(t.Context(), core.Policy{Key: "k", Wait: tt.wait})
				mustBe(t, err, core.ErrUnavailable)
				if !errors.Is(err, down) {
					t.Error("the cause is out of reach")
				}
				if took := time.Since(start); took > tt.max {
					t.Errorf("took %v", took)
				}
				d.Fail(nil)
				mustBe(t, e.Ping(t.Context()), nil)
				mustBe(t, mustAcquire(t, e, core.Policy{Key: "k"}).Release(t.Context()), nil)
			})
		})
	}
}

func TestTextOfAPingSaysWhatTheStoreCameTo(t *testing.T) {
	for name, tt := range map[string]struct{ says, want string }{
		"refused":     {"dial tcp 10.0.0.1:6379: connect:\n\tconnection refused", "lock ping: lock store unavailable: dial tcp 10.0.0.1:6379: connect: connection refused (memory)"},
		"credentials": {"parse redis://shop:secret@10.0.0.1/x", "lock ping: lock store unavailable: parse redis:(credentials)10.0.0.1/x (memory)"},
		"long":        {strings.Repeat("é", 400), "lock ping: lock store unavailable: " + strings.Repeat("é", 250) + " (memory)"},
	} {
		t.Run(name, func(t *testing.T) {
			d := memlock.New()
			d.Fail(errors.New(tt.says))
			defer d.Fail(nil)
			e := open(t, d)
			if err := e.Ping(t.Context()); err == nil || err.Error() != tt.want {
				t.Errorf("%v\nwant %s", err, tt.want)
			}
		})
	}
}

// tried is the error of a request that has run out of time after tries that failed.
type tried struct{ last error }

func (tried) Error() string    { return "out of time" }
func (t tried) LastTry() error { return t.last }
func (tried) Unwrap() error    { return context.DeadlineExceeded }

func TestTriesThatAllFailedAreNoSilence(t *testing.T) {
	for last, want := range map[error]string{errors.New("no such host"): "nothing that was tried has succeeded in time", nil: "did not answer in time"} {
		d := memlock.New()
		d.Fail(tried{last})
		e := open(t, d)
		if _, err := e.Acquire(t.Context(), core.Policy{Key: "k", Name: "n"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want that it %s", err, want)
		}
		d.Fail(nil)
	}
}

func TestWaiterOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d)
		d.Fail(errors.New("down"))
		time.AfterFunc(20*time.Second, func() { d.Fail(nil) })
		start := time.Now()
		l := mustAcquire(t, e, core.Policy{Key: "k", Wait: core.Forever})
		if took := time.Since(start); took > 22*time.Second {
			t.Errorf("took %v", took)
		}
		mustBe(t, l.Release(t.Context()), nil)
	})
}

func TestReleaseDuringAnOutageGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		l := mustAcquire(t, e, core.Policy{Key: "k"})
		d.Fail(errors.New("down"))
		mustBe(t, l.Release(t.Context()), core.ErrUnavailable)
		mustBe(t, e.Do(t.Context(), core.Policy{Key: "j"}, func(context.Context) error { return nil }), core.ErrUnavailable)
		time.Sleep(5 * time.Second)
		d.Fail(nil)
		time.Sleep(3 * time.Second)
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

func TestMinHoldKeepsTheKeyTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		start := time.Now()
		mustBe(t, e.Do(t.Context(), core.Policy{Key: "k", MinHold: time.Minute}, func(context.Context) error { return nil }), nil)
		for _, e := range []*core.Engine{e, other} {
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k"})
			mustBe(t, err, core.ErrBusy)
		}
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "k", Wait: 2 * time.Minute}).Release(t.Context()), nil)
		if took := time.Since(start); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("taken for %v", took)
		}
	})
}
