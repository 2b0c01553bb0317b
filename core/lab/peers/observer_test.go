package main

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestObserverCountsWhatLiesInATime(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }
	o := &observer{looks: []look{
		{at(1), 0, 5}, {at(12), 10 * time.Millisecond, 7}, {at(13), time.Millisecond / 2, 8}, {at(20), 6 * time.Millisecond, 30},
	}}
	if got := o.commands(at(2), at(13)); got != 3 {
		t.Errorf("there were %d commands; want those after the first look until the third, 3", got)
	}
	if got := o.stall(at(12), at(13)); got != time.Millisecond/2 {
		t.Errorf("the worst stall is %v; want that of the third look", got)
	}
	if got := o.stall(at(0), at(30)); got != 10*time.Millisecond {
		t.Errorf("the worst stall is %v; want 10ms", got)
	}
}

func TestObserverTimesTheLink(t *testing.T) {
	const delay = 2 * time.Millisecond
	var commands atomic.Int64
	o, err := observe(t.Context(), Scenario{Delay: delay, Busy: true}, &commands)
	if err != nil {
		t.Fatal(err)
	}
	commands.Add(1)
	o.Close()
	if n, trip := o.trips.Count(), o.trips.Quantile(0.5); n == 0 || trip < 2*delay*98/100 {
		t.Errorf("%d trips took %v; want at least one of %v", n, trip, 2*delay)
	}
	if len(o.looks) == 0 || o.looks[len(o.looks)-1].commands != 1 {
		t.Errorf("it saw %+v; want the one command", o.looks)
	}
}
