package redlock

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// gatedWire has votes and ends wait until the test lets them through, each on its own.
type gatedWire struct {
	wire
	votes, ends chan struct{}

	mu   sync.Mutex
	done []operation // in the order of their execution
}

func (w *gatedWire) run(_ context.Context, cmds []command) []reply {
	rs := make([]reply, len(cmds))
	switch cmds[0].op {
	case opVote:
		<-w.votes
	case opEnd:
		<-w.ends
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range cmds {
		w.done = append(w.done, c.op)
		rs[i].status = map[operation]status{opVote: statusGranted, opEnd: statusEnded}[c.op]
	}
	return rs
}

func (w *gatedWire) listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// cancelled starts an Acquire over three such wires and cancels it when the votes are on
// their way.
func cancelled(t *testing.T) (driver.Session, driver.Request, []*gatedWire) {
	var all []*gatedWire
	var ws []wire
	for range 3 {
		w := &gatedWire{votes: make(chan struct{}), ends: make(chan struct{})}
		all, ws = append(all, w), append(ws, w)
	}
	d := newDriver([]string{"a", "b", "c"}, func(time.Duration) ([]wire, error) { return ws, nil }, nil)
	s, err := d.Open(driver.Config{Sink: noting{}, StoreTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		synctest.Wait()
		cancel()
	}()
	r := request("k", time.Minute)
	if _, err := s.Acquire(ctx, r); err != context.Canceled {
		t.Fatalf("a cancelled Acquire gives %v", err)
	}
	synctest.Wait()
	return s, r, all
}

func TestEndsThatCameBeforeTheRequestsAreSentAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		let  func(*gatedWire) // requests and the first end
		want []operation
	}{
		{"the end is executed first", func(w *gatedWire) {
			w.ends <- struct{}{}
			synctest.Wait()
			close(w.votes)
		}, []operation{opEnd, opVote, opEnd}},
		{"the end is on its way when the request is answered", func(w *gatedWire) {
			close(w.votes)
			synctest.Wait()
			w.ends <- struct{}{}
		}, []operation{opVote, opEnd, opEnd}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, all := cancelled(t)
				for _, w := range all {
					c.let(w)
					synctest.Wait()
					close(w.ends)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				for i, w := range all {
					if !slices.Equal(w.done, c.want) {
						t.Errorf("node %d has executed %v; want %v", i, w.done, c.want)
					}
				}
			})
		})
	}
}

func TestSessionIsNotClosedBeforeRequestsOnTheirWayAreUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, all := cancelled(t)
		for _, w := range all {
			close(w.ends)
		}
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		for _, w := range all {
			close(w.votes)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for i, w := range all {
			if want := []operation{opEnd, opVote, opEnd}; !slices.Equal(w.done, want) {
				t.Errorf("node %d has executed %v; want %v", i, w.done, want)
			}
		}
	})
}

func TestOwnerWhoseEndIsOwedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, all := cancelled(t)
		for _, w := range all {
			close(w.votes)
		}
		synctest.Wait()
		if _, err := s.Acquire(t.Context(), r); err != driver.ErrPlaceLost {
			t.Errorf("an owner that was given up asks again and gets %v", err)
		}
		for _, w := range all {
			close(w.ends)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
