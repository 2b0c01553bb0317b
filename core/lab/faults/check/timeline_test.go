package check_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

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
	drawn, err := check.Draw(check.Picture{Title: "t & t", Captions: []string{"one", "two"}, Key: "k", To: 100 * ms}, events, check.Rules{HandOffs: 1024})
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
		`<rect class="c1"`: 1, `<rect class="c2"`: 1, `<rect class="claim c1"`: 1, `<rect class="overlap"`: 2, `<rect class="fault"`: 2, `class="refused" d`: 2, `<circle class="written"`: 2, // one each in the legend
		`dy="13">process 1<`: 1, "process 3": 0, "a &lt; b of process 1<": 2, ">100 ms<": 0, ">0.1 s<": 1, "t &amp; t": 2,
	} {
		if got := strings.Count(drawn, what); got != want {
			t.Errorf("%s is in it %d times, want %d:\n%s", what, got, want, drawn)
		}
	}
}

func draw(t *testing.T, p check.Picture, events []history.Event) string {
	t.Helper()
	drawn, err := check.Draw(p, events, check.Rules{HandOffs: 1024})
	if err != nil {
		t.Fatal(err)
	}
	return drawn
}

func TestThoseWhoHoldTogetherAreNoOverlap(t *testing.T) {
	together := func(second string) string {
		a, b := section(1, 1024, 10, 30), section(2, 2048, 20, 40)
		a[0].Mode, b[0].Mode = history.Shared, second
		return draw(t, check.Picture{Key: "k", To: 100 * ms}, append(a, b...))
	}
	if got := together(history.Shared); strings.Contains(got, "<rect class=\"overlap") || strings.Count(got, "<rect class=\"beside c") != 3 {
		t.Errorf("two readers and the legend's sign of them:\n%s", got)
	}
	if got := together(""); !strings.Contains(got, "<rect class=\"overlap") {
		t.Errorf("a reader and a writer:\n%s", got)
	}
}

// TestLabelsOfFaultsAreApart has faults that come close together, and the last one at the
// picture's edge.
func TestLabelsOfFaultsAreApart(t *testing.T) {
	events := section(1, 1024, 10, 90)
	for _, f := range []struct {
		name     string
		from, to int64
	}{{"a-long-name", 5, 15}, {"next", 6, 7}, {"third-at-once", 8, 60}, {"later", 50, 51}, {"at-the-very-edge", 98, 99}} {
		events = append(events, history.Event{Op: history.Fault, Name: f.name, Call: f.from * ms, Return: f.to * ms})
	}
	d := xml.NewDecoder(strings.NewReader(draw(t, check.Picture{Key: "k", To: 100 * ms}, events)))
	type extent struct{ from, to float64 }
	rows := map[string][]extent{}
	labels := 0
	var x, dx float64
	var y string
	var end, label bool
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			x, dx, y, end, label = 0, 0, "", false, false
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "x":
					x, _ = strconv.ParseFloat(a.Value, 64)
				case "dx":
					dx, _ = strconv.ParseFloat(a.Value, 64)
				case "y":
					y = a.Value
				case "text-anchor":
					end = a.Value == "end"
				case "dy":
					label = a.Value == "-5"
				}
			}
		case xml.CharData:
			if !label {
				continue
			}
			labels++
			long := 6.5 * float64(len(e))
			at := extent{x, x + long}
			if end {
				at = extent{x + dx - long, x + dx}
			}
			if at.to > 96+840 {
				t.Errorf("%s ends at %.0f, beyond the picture", e, at.to)
			}
			for _, other := range rows[y] {
				if at.from < other.to && other.from < at.to {
					t.Errorf("%s lies on another label", e)
				}
			}
			rows[y] = append(rows[y], at)
			label = false
		}
	}
	if labels != 5 || len(rows) != 3 {
		t.Errorf("%d labels in %d rows, want 5 in 3", labels, len(rows))
	}
}
