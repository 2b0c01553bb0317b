package core_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// wrongLog is a handler that does something that none should.
type wrongLog struct {
	slog.Handler
	do    func()
	lines *atomic.Int64
}

func (wrongLog) Enabled(context.Context, slog.Level) bool { return true }

func (l wrongLog) Handle(context.Context, slog.Record) error {
	l.lines.Add(1)
	l.do()
	return nil
}

// A store that stops and comes back has the engine log with a mutex held that every call of the
// store needs, and on goroutines of its own.
func TestLogHandlerKeepsNothingFromGoingOn(t *testing.T) {
	forever := make(chan struct{})
	for name, do := range map[string]func(){
		"panics":                 func() { panic("of the log handler") },
		"ends its goroutine":     runtime.Goexit,
		"never returns":          func() { <-forever },
		"logs, and waits for it": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				forever = make(chan struct{})
				defer close(forever)
				log := wrongLog{slog.DiscardHandler, do, new(atomic.Int64)}
				var e *core.Engine
				if do == nil {
					log.do = func() {
						if log.lines.Load() == 1 {
							e.Logger().Error("another")
						}
					}
				}
				d := &silentStore{Driver: memlock.New()}
				e = open(t, d, core.WithLogger(slog.New(log)))
				other := mustAcquire(t, e, core.Policy{Key: "other", TTL: 10 * time.Second})
				lost := mustAcquire(t, e, core.Policy{Key: "lost", TTL: time.Second, NoRenew: true})
				d.silent.Store(true)
				_, err := e.Acquire(t.Context(), core.Policy{Key: "k"})
				mustBe(t, err, core.ErrUnavailable)
				d.silent.Store(false)
				start := time.Now()
				mustBe(t, mustAcquire(t, e, core.Policy{Key: "k"}).Release(t.Context()), nil)
				if took := time.Since(start); took > time.Second {
					t.Errorf("the next call took %v", took)
				}
				<-lost.Done()
				time.Sleep(time.Minute)
				mustBe(t, other.Err(), nil) // it is renewed all along
				mustBe(t, other.Release(t.Context()), nil)
				mustBe(t, lost.Release(t.Context()), core.ErrLost)
				start = time.Now()
				mustBe(t, e.Close(), nil)
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("Close took %v", took)
				}
				if log.lines.Load() == 0 {
					t.Error("nothing was logged")
				}
			})
		})
	}
}

// silentStore is one that answers nothing while it is silent.
type silentStore struct {
	*memlock.Driver
	silent atomic.Bool
}

func (d *silentStore) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return silentSession{s, d}, err
}

type silentSession struct {
	driver.Session
	d *silentStore
}

func (s silentSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if s.d.silent.Load() {
		return driver.Grant{}, errors.New("connection refused")
	}
	return s.Session.Acquire(ctx, r)
}
