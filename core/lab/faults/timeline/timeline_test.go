package timeline_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/timeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = int64(time.Millisecond)

// section is a critical section.
func section(process int, token, from, to int64) []history.Event {
	e := history.Event{Process: process, Client: 1, Key: "k", Token: token}
	a, b, c := e, e, e
	a.Op, a.Call, a.Return, a.Deadline = history.Acquire, (from-1)*ms, from*ms, (from+500)*ms
	b.Op, b.Call = history.Release, to*ms
	c.Op, c.Call, c.Return = history.Released, to*ms, (to+1)*ms
	return []history.Event{a, b, c}
}

func TestPictureShowsClaimsFaultsOverlapsAndRefusals(t *testing.T) {
	events := append(section(1, 1024, 10, 30), section(2, 2048, 20, 40)...)
	events = append(events, section(3, 3072, 900, 901)...) // not in the picture
	events = append(
		events,
		history.Event{Op: history.Fault, Name: "a < b", Process: 1, Call: 5 * ms, Return: 15 * ms},
		history.Event{Op: history.Fault, Name: "later", Call: 800 * ms, Return: 900 * ms},
		history.Event{Process: 1, Client: 1, Key: "k", Op: history.Write, Call: 25 * ms, Return: 25 * ms, Error: history.Stale},
		history.Event{Process: 2, Client: 1, Key: "k", Op: history.Write, Call: 26 * ms, Return: 26 * ms},
		history.Event{Process: 2, Client: 1, Key: "other", Op: history.Write, Call: 27 * ms, Return: 27 * ms},
	)
	drawn, err := timeline.Draw(timeline.Picture{Title: "t & t", Captions: []string{"one", "two"}, Key: "k", To: 100 * ms}, events, check.Rules{HandOffs: 1024})
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("it is no XML: %v\n%s", err, drawn)
		}
	}
	for what, want := range map[string]int{
		`<rect class="c`: 2, `<rect class="overlap"`: 1, `<rect class="fault"`: 1, `class="refused" d`: 1, `<circle class="written"`: 1,
		`dy="13">process 1<`: 1, "process 3": 0, "a &lt; b of process 1<": 2, ">100 ms<": 0, ">0.1 s<": 1, "t &amp; t": 2,
	} {
		if got := strings.Count(drawn, what); got != want {
			t.Errorf("%s is in it %d times, want %d:\n%s", what, got, want, drawn)
		}
	}
}
