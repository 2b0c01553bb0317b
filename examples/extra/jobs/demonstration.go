package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// demonstrate starts the replicas, kills the one that runs the second tick, and says
// whether each tick was completed once.
func demonstrate(ctx context.Context, o options, stdout io.Writer) error {
	o.namespace = fmt.Sprintf("jobs-example-%d", os.Getpid())
	all, err := startAll(o)
	defer all.end()
	if err != nil {
		return err
	}
	d := &demonstration{out: stdout, ticks: o.ticks, period: o.period, completed: map[time.Time]int{}}
	var end <-chan time.Time
	for ready := 0; ; {
		select {
		case m := <-all.said:
			if m.what == "ready" {
				if ready++; ready == o.replicas {
					d.first = time.Now().Add(o.period).Truncate(o.period)
					end = time.After(time.Until(d.last().Add(o.period * 3 / 4)))
				}
				continue
			}
			if err := d.take(m); err != nil {
				return err
			}
		case <-end:
			return d.judge()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// demonstration is what has become of the ticks.
type demonstration struct {
	out       io.Writer
	first     time.Time // when all replicas were there; zero before
	ticks     int
	period    time.Duration
	completed map[time.Time]int
	killed    *process
}

func (d *demonstration) last() time.Time {
	return d.first.Add(time.Duration(d.ticks-1) * d.period)
}

// take goes on with what a replica says.
func (d *demonstration) take(m message) error {
	counts := !d.first.IsZero() && !m.tick.Before(d.first) && !m.tick.After(d.last())
	switch m.what {
	case "begin":
		if counts && d.killed == nil && m.tick.Equal(d.first.Add(d.period)) {
			d.killed = m.from
			d.say(m, "begins the report and is killed, token "+m.more)
			return m.from.kill()
		}
		return m.from.allow()
	case "complete":
		if counts {
			d.completed[m.tick]++
			d.say(m, "completes the report, token "+m.more)
		}
	case "outcome":
		if counts && m.more == "caught_up" {
			d.say(m, "has caught it up")
		}
	case "ended":
		if m.from != d.killed {
			return fmt.Errorf("replica %d has ended", m.from.number)
		}
	}
	return nil
}

func (d *demonstration) say(m message, what string) {
	fmt.Fprintln(d.out, m.tick.Format(time.TimeOnly), "replica", m.from.number, what)
}

// judge says whether each tick was completed once.
func (d *demonstration) judge() error {
	var faults []error
	for tick := d.first; !tick.After(d.last()); tick = tick.Add(d.period) {
		if n := d.completed[tick]; n != 1 {
			faults = append(faults, fmt.Errorf("the tick of %s was completed %d times", tick.Format(time.TimeOnly), n))
		}
	}
	if d.killed == nil {
		faults = append(faults, errors.New("nobody ran the second tick, and so nobody was killed"))
	}
	if len(faults) == 0 {
		fmt.Fprintf(d.out, "%d ticks, each of them completed once\n", d.ticks)
	}
	return errors.Join(faults...)
}
