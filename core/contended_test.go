package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// told reports whether a lease has heard that somebody else waits.
func told(l *core.Lease) bool {
	synctest.Wait()
	select {
	case <-l.Contended():
		return true
	default:
		return false
	}
}

func TestHolderIsToldThatAnotherCallerWaits(t *testing.T) {
	for name, tc := range map[string]struct{ held, wanted core.Policy }{
		"exclusive":                 {core.Policy{Key: "k"}, core.Policy{Key: "k"}},
		"strict":                    {core.Policy{Key: "k", Fairness: core.Strict}, core.Policy{Key: "k", Fairness: core.Strict}},
		"reader, and a writer":      {core.Policy{Key: "k", Mode: core.Shared}, core.Policy{Key: "k"}},
		"writer, and a reader":      {core.Policy{Key: "k"}, core.Policy{Key: "k", Mode: core.Shared}},
		"semaphore":                 {core.Policy{Key: "k", Mode: core.Semaphore, Limit: 1}, core.Policy{Key: "k", Mode: core.Semaphore, Limit: 1}},
		"the second of two keys":    {core.Policy{Keys: []string{"j", "k"}}, core.Policy{Key: "k"}},
		"the first of several keys": {core.Policy{Keys: []string{"k", "l", "m"}}, core.Policy{Key: "k"}},
	} {
		for where, same := range map[string]bool{"in its process": true, "in another one": false} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := memlock.New()
					e := open(t, d)
					other := e
					if !same {
						other = open(t, d)
					}
					for _, asksFirst := range []bool{true, false} {
						l := mustAcquire(t, e, tc.held)
						if asksFirst && told(l) {
							t.Error("told before anybody waited")
						}
						ctx, cancel := context.WithCancel(t.Context())
						over := make(chan struct{})
						go func() {
							defer close(over)
							p := tc.wanted
							p.Wait = core.Forever
							if l, err := other.Acquire(ctx, p); err == nil {
								_ = l.Release(context.Background())
							}
						}()
						synctest.Wait()
						for range 2 {
							if !told(l) {
								t.Errorf("not told (asked before: %t)", asksFirst)
							}
						}
						if l.Err() != nil {
							t.Errorf("the lease has ended: %v", l.Err())
						}
						cancel()
						<-over
						mustBe(t, l.Release(t.Context()), nil)
						time.Sleep(time.Minute)
					}
				})
			})
		}
	}
}

func TestReaderIsNotToldOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		read := core.Policy{Key: "k", Mode: core.Shared, Wait: time.Minute}
		l := mustAcquire(t, e, read)
		for range 5 {
			time.Sleep(10 * time.Second)
			mustBe(t, mustAcquire(t, e, read).Release(t.Context()), nil)
			mustBe(t, mustAcquire(t, other, read).Release(t.Context()), nil)
			if told(l) {
				t.Fatal("told of a reader")
			}
		}
		mustBe(t, l.Release(t.Context()), nil)
		if ended := l.Contended(); ended == nil {
			t.Error("a lease that has ended has no channel")
		}
		if (*core.Lease)(nil).Contended() != nil {
			t.Error("no lease has a channel")
		}
	})
}
