package driver_test

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/lockaround/lockaround/core/driver"
)

func TestDeadlineComesBeforeTheTTLIsOver(t *testing.T) {
	sent := time.Now()
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 7900 * time.Microsecond,
		time.Second:           988 * time.Millisecond,
		30 * time.Second:      29698 * time.Millisecond,
	} {
		if got := driver.Deadline(sent, ttl).Sub(sent); got != want {
			t.Errorf("a TTL of %v leaves %v, want %v", ttl, got, want)
		}
	}
}

// jumped is a time at which the wall clock has been set by whole seconds, and the monotonic
// one goes on. There is no way to make one but to look into a time.Time.
func jumped(now time.Time, by time.Duration) time.Time {
	inside := (*struct {
		wall uint64 // a bit, seconds in the next 33, nanoseconds in 30
		ext  int64  // the monotonic clock
		loc  *time.Location
	})(unsafe.Pointer(&now))
	inside.wall += uint64(int64(by/time.Second)) << 30
	return now
}

func TestRemainingGoesByTheClockThatLeavesLess(t *testing.T) {
	now := time.Now()
	deadline := now.Add(time.Minute)
	wall := func(d time.Duration) time.Time { return now.Round(0).Add(d) } // has no monotonic reading
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		if then := jumped(now, by); then.Sub(now) != 0 || then.Unix()-now.Unix() != int64(by/time.Second) {
			t.Fatalf("%v has jumped by %v to %v: a time.Time has changed inside", now, by, then)
		}
	}
	tests := []struct {
		name     string
		deadline time.Time
		now      time.Time
		want     time.Duration
	}{
		{"clocks agree", deadline, now, time.Minute},
		{"the wall clock has been set an hour forward", deadline, jumped(now, time.Hour), time.Minute - time.Hour},
		{"the wall clock has been set an hour back", deadline, jumped(now, -time.Hour), time.Minute},
		{"time has passed", deadline, now.Add(90 * time.Second), -30 * time.Second},
		{"wall clock only", deadline, wall(20 * time.Second), 40 * time.Second},
		{"wall clock of the deadline only", now.Round(0).Add(1500 * time.Millisecond), now, 1500 * time.Millisecond},
		{"no deadline", time.Time{}, now, math.MinInt64},
		{"a deadline beyond all", now.AddDate(1000, 0, 0), now, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := driver.Remaining(tt.deadline, tt.now); got != tt.want {
				t.Errorf("%v remain, want %v", got, tt.want)
			}
		})
	}
	t.Attr("figure-15", "a process goes by the monotonic clock or its wall clock, whichever leaves a lease less: an hour forward ends its leases at once, an hour back changes nothing")
}

func TestLaterIsTheLaterAndZeroTheEarliest(t *testing.T) {
	a := time.Now()
	b := a.Add(1)
	for _, tt := range []struct{ x, y, want time.Time }{{a, b, b}, {b, a, b}, {a, a, a}, {time.Time{}, a, a}, {a, time.Time{}, a}} {
		if got := driver.Later(tt.x, tt.y); !got.Equal(tt.want) {
			t.Errorf("Later(%v, %v) = %v", tt.x, tt.y, got)
		}
	}
}
