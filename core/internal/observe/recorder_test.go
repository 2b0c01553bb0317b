package observe

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/manager"
)

func TestRecorderKeepsTheBusiestOfManyKeys(t *testing.T) {
	r := NewRecorder(&Origin{}, 0)
	for i := range 5_000 {
		r.Note(manager.Event{Kind: manager.EventTaken, Key: fmt.Sprint("once:", i), Terms: &manager.Terms{Name: fmt.Sprint("policy:", i)}})
		r.Note(manager.Event{Kind: manager.EventTaken, Key: "busy", Terms: &manager.Terms{Name: "busy"}})
	}
	n, busy := 0, int64(0)
	left := r.Keys.Each(time.Now(), func(name string, rec *Record) {
		n++
		if name == "busy" {
			busy = rec.Happened(NumberOf(time.Now()))
		}
		if cap(rec.events) > 2*Events {
			t.Errorf("%d events are kept", cap(rec.events))
		}
	})
	if n > parts*inPart || busy != 5_000 || left == 0 {
		t.Errorf("%d keys are kept, the busiest with %d events; %d left out", n, busy, left)
	}
}

func TestOrderOfKeysThatAreAlikeTellsNothingOfTheirNames(t *testing.T) {
	all := make(Ranking[int])
	for i := range 4 * MaxKeys {
		all.Of(fmt.Sprintf("pin:%04d", i))
	}
	first, again := all.Best(MaxKeys), all.Best(MaxKeys)
	rises, low := 0, 0
	for i, c := range first {
		if again[i] != c {
			t.Fatalf("place %d is of %s, then of %s", i, c.Name, again[i].Name)
		}
		if i > 0 && first[i-1].Name < c.Name {
			rises++
		}
		if c.Name < fmt.Sprintf("pin:%04d", 2*MaxKeys) {
			low++
		}
	}
	// Of a random order half of each, with a deviation of 5 and 7.
	if rises < MaxKeys/2-60 || rises > MaxKeys/2+60 || low < MaxKeys/2-80 || low > MaxKeys/2+80 {
		t.Errorf("of %d keys %d come after one with a smaller name, and %d are from the first half of the names", MaxKeys, rises, low)
	}
}

func TestBudgetIsThirtyMessagesInAnyMinute(t *testing.T) {
	var s sharing
	var sent []time.Time
	now := time.Now()
	for range int(10 * time.Minute / tick) {
		now = now.Add(tick)
		if s.may(now) {
			sent = append(sent, now)
			s.spend(now)
		}
	}
	for i := range sent {
		if i >= 30 && sent[i].Sub(sent[i-30]) < time.Minute-tick {
			t.Fatalf("31 messages within %v", sent[i].Sub(sent[i-30]))
		}
	}
}

// FuzzAsk reads what anybody may have sent.
func FuzzAsk(f *testing.F) {
	f.Add(ask{Instance{1}, time.Minute, true}.encode())
	f.Add(Message(KindClosed, Instance{1}))
	f.Fuzz(func(t *testing.T, message []byte) {
		if _, _, rest, ok := Open(message); ok {
			if a, err := parseAsk(rest); err == nil && a.valid < 0 {
				t.Errorf("%+v", a)
			}
		}
	})
}
