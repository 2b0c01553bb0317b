package simulation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/simulation"
)

func acquire(owner byte, channel string) simulation.Command {
	return simulation.Command{Script: protocol.Acquire.Name, Key: "la2:{00}:k", Args: protocol.AcquireArgs{
		Owner: driver.Owner{owner}, Channel: channel, Length: time.Minute, PlaceTTL: 3 * time.Second, Create: true, Wait: true,
	}.Args()}
}

func release(owner byte) simulation.Command {
	return simulation.Command{Script: protocol.End.Name, Key: "la2:{00}:k", Args: protocol.EndArgs{Owner: driver.Owner{owner}}.Args()}
}

func status(t *testing.T, r simulation.Reply) protocol.Status {
	t.Helper()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	a, err := protocol.ParseAcquire(r.Value)
	if err != nil {
		t.Fatal(err)
	}
	return a.Status
}

func TestHealthyLinkRunsAndPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(1, simulation.Faults{}, 1)
		a, b := w.Link(), w.Link()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string, 1)
		up := make(chan struct{})
		done := make(chan error)
		go func() { done <- b.Listen(ctx, "b", func() { close(up) }, func(m string) { got <- m }) }()
		<-up
		if s := status(t, a.Run(ctx, []simulation.Command{acquire(1, "a")})[0]); s != protocol.Granted {
			t.Errorf("first: %v", s)
		}
		if s := status(t, b.Run(ctx, []simulation.Command{acquire(2, "b")})[0]); s != protocol.Queued {
			t.Errorf("second: %v", s)
		}
		if r := a.Run(ctx, []simulation.Command{release(1)})[0]; r.Err != nil || !r.SentOnce {
			t.Errorf("release: %+v", r)
		}
		if p, err := protocol.ParsePush(<-got); err != nil || p.Owner != (driver.Owner{2}) {
			t.Errorf("push %+v, %v", p, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("listen: %v", err)
		}
	})
}

func TestFaultsHappen(t *testing.T) {
	for name, tt := range map[string]struct {
		faults   simulation.Faults
		executed int // runs of the script a minute later
	}{
		"lost request": {simulation.Faults{LoseRequest: 1}, 0},
		"lost reply":   {simulation.Faults{LoseReply: 1}, 1},
		"late":         {simulation.Faults{Late: 1, LateBy: 30 * time.Second}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := simulation.New(7, tt.faults, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if r := w.Link().Run(ctx, []simulation.Command{acquire(1, "a")})[0]; r.Err == nil {
					t.Errorf("answered %v", r.Value)
				}
				time.Sleep(time.Minute)
				if n := w.Counts()["acquire granted"]; n != tt.executed {
					t.Errorf("executed %d times, want %d", n, tt.executed)
				}
			})
		})
	}
	t.Run("twice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := simulation.New(7, simulation.Faults{Twice: 1, LateBy: time.Second}, 1)
			if r := w.Link().Run(t.Context(), []simulation.Command{acquire(1, "a")})[0]; r.Err != nil || r.SentOnce {
				t.Errorf("%+v", r)
			}
			time.Sleep(time.Minute)
			if n := w.Counts()["acquire granted"]; n != 2 {
				t.Errorf("executed %d times", n)
			}
		})
	})
}

func TestOwnerUsedAfterItsEndIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(1, simulation.Faults{}, 1)
		l := w.Link()
		l.Run(t.Context(), []simulation.Command{release(1)})
		l.Run(t.Context(), []simulation.Command{acquire(1, "a")})
		if v := w.Violations(); len(v) != 0 {
			t.Errorf("within the grace: %q", v)
		}
		time.Sleep(simulation.OwnerGrace)
		l.Run(t.Context(), []simulation.Command{acquire(1, "a")})
		if v := w.Violations(); len(v) != 1 {
			t.Errorf("after the grace: %q", v)
		}
	})
}

func TestStoppedServerRefusesAndForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(1, simulation.Faults{}, 1)
		l := w.Link()
		l.Run(t.Context(), []simulation.Command{acquire(1, "a")})
		w.StopServer(true)
		if r := l.Run(t.Context(), []simulation.Command{acquire(2, "a")})[0]; r.Err == nil {
			t.Errorf("a stopped server answers %v", r.Value)
		}
		w.StartServer()
		if s := status(t, l.Run(t.Context(), []simulation.Command{acquire(2, "a")})[0]); s != protocol.Granted {
			t.Errorf("after a loss of data: %v", s)
		}
		if v := w.Violations(); len(v) != 0 {
			t.Errorf("%q", v)
		}
	})
}
