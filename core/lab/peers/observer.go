package main

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// observer notes what happens around a trial while it runs, from outside of its processes.
// It looks at least once.
type observer struct {
	cancel context.CancelFunc
	all    sync.WaitGroup
	looks  []look
	trips  measure.Waits
}

// look is one look of the observer.
type look struct {
	at       time.Time
	late     time.Duration // it came so much later than it was meant to
	commands int64         // that had been sent by then
}

// lookEvery is how long an observer sleeps between two looks.
const lookEvery = time.Millisecond

// observe watches the machine, the counter, and a link like the scenario's if it has one.
func observe(ctx context.Context, s Scenario, commands *atomic.Int64) (*observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{cancel: cancel}
	if s.Delay > 0 {
		if err := o.travel(ctx, s); err != nil {
			cancel()
			return nil, err
		}
	}
	o.all.Go(func() {
		for {
			began := time.Now()
			time.Sleep(lookEvery)
			at := time.Now()
			o.looks = append(o.looks, look{at, at.Sub(began) - lookEvery, commands.Load()})
			if ctx.Err() != nil {
				return
			}
		}
	})
	return o, nil
}

// Close ends the observer; what it saw is there then.
func (o *observer) Close() {
	o.cancel()
	o.all.Wait()
}

// travel times bytes that go over such a link to an echo and back.
func (o *observer) travel(ctx context.Context, s Scenario) error {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.all.Go(func() {
		conn, err := echo.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	})
	way, err := newLink(echo.Addr().String(), s.Delay, s.Busy, nil)
	if err != nil {
		_ = echo.Close() // ends its goroutine
		return err
	}
	conn, err := net.Dial("tcp", way.Addr())
	if err != nil {
		_, _ = echo.Close(), way.Close()
		return err
	}
	o.all.Go(func() {
		defer func() {
			_, _, _ = conn.Close(), echo.Close(), way.Close()
		}()
		for one := []byte{1}; ; time.Sleep(20 * time.Millisecond) {
			began := time.Now()
			if _, err := conn.Write(one); err != nil {
				return
			}
			if _, err := io.ReadFull(conn, one); err != nil {
				return
			}
			if o.trips.Add(time.Since(began)); ctx.Err() != nil {
				return
			}
		}
	})
	return nil
}

// stall is by how much the latest look of that time was late: what the machine itself may
// add to a wait.
func (o *observer) stall(from, to time.Time) (worst time.Duration) {
	for _, l := range o.looks {
		if l.at.After(from) && l.at.Add(-l.late-lookEvery).Before(to) {
			worst = max(worst, l.late)
		}
	}
	return worst
}

// commands is how many were sent in that time.
func (o *observer) commands(from, to time.Time) int64 {
	var first, last int64
	for _, l := range o.looks {
		if !l.at.After(from) {
			first = l.commands
		}
		if !l.at.After(to) {
			last = l.commands
		}
	}
	return last - first
}
