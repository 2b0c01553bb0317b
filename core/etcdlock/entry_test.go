package etcdlock

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

func TestPlaceIsReadAsItWasWritten(t *testing.T) {
	for _, p := range []place{
		{mode: driver.Exclusive, ttl: time.Second, stage: waiting},
		{mode: driver.Shared, ttl: time.Hour, stage: holding, since: time.UnixMicro(1_700_000_000_000_001)},
		{mode: driver.Semaphore, limit: 3, stage: kept, since: time.UnixMicro(1)},
	} {
		got, err := parsePlace(p.String())
		if err != nil || got != p {
			t.Errorf("%q is read as %+v, %v, and was %+v", p, got, err, p)
		}
	}
	for _, text := range []string{
		"", "e", "e 0 1000 w", "e 0 1000 w 0 0", "x 0 1000 w 0", "e 1 1000 w 0", "p 0 1000 w 0", "p -1 1000 w 0",
		"e 0 -1 w 0", "e 0 1000 q 0", "e 0 1000 w -1", "e 0 01 w 0", "e 0 1000 w 0 ", "e 0 99999999999999999 w 0",
	} {
		if p, err := parsePlace(text); err == nil {
			t.Errorf("%q is read as %+v", text, p)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("e 0 30000 w 0")
	f.Add("p 3 2000 h 1700000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlace(text)
		if err == nil && p.String() != text {
			t.Errorf("%q is read as %+v, which is written %q", text, p, p)
		}
	})
}

func TestLeaseOfEtcdIsNeverShorterThanAskedFor(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{
		2 * time.Second:                 2,
		2*time.Second + 1:               3,
		2999 * time.Millisecond:         3,
		time.Duration(1<<63 - 1):        9223372037,
		30*time.Second + 999999999*1:    31,
		time.Hour + 500*time.Nanosecond: 3601,
	} {
		if got := seconds(ttl); got != want {
			t.Errorf("%v are asked for as %d s, want %d", ttl, got, want)
		}
		if secondsToDuration(seconds(ttl)) < ttl && ttl < time.Duration(1<<63-1)/time.Second*time.Second {
			t.Errorf("%v became %v", ttl, secondsToDuration(seconds(ttl)))
		}
	}
}
