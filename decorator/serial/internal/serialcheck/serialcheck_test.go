package serialcheck_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/decorator/serial/internal/serialcheck"
)

type event = serialcheck.Event

func accepted(seq int64) event {
	return event{At: seq, Kind: serialcheck.Accepted, Key: "k", Seq: seq}
}

// ran is a run of process p from at to at+5, with an effect at at+4.
func ran(p string, at, seq int64, attempt int) []event {
	e := event{Process: p, Key: "k", Seq: seq, Attempt: attempt, Token: at}
	var all []event
	for after, kind := range map[int64]serialcheck.Kind{0: serialcheck.Started, 4: serialcheck.Effect, 5: serialcheck.Returned} {
		e.At, e.Kind = at+after, kind
		all = append(all, e)
	}
	return all
}

func TestCheckFindsWhatMustNotBe(t *testing.T) {
	both := []event{accepted(1), accepted(2)}
	cut := func(all []event, kinds ...serialcheck.Kind) (left []event) {
		for _, e := range all {
			keep := true
			for _, k := range kinds {
				keep = keep && e.Kind != k
			}
			if keep {
				left = append(left, e)
			}
		}
		return left
	}
	killed := func(p string, at int64) []event {
		return []event{{From: at - 10, At: at, Kind: serialcheck.Killed, Process: p}}
	}
	for name, tc := range map[string]struct {
		history [][]event
		want    string // of a fault; empty for none
		twice   int
	}{
		"all is well":                {[][]event{both, ran("a", 100, 1, 1), ran("b", 200, 2, 1)}, "", 0},
		"lost":                       {[][]event{both, ran("a", 100, 1, 1)}, "has no effect", 0},
		"begun and lost":             {[][]event{both, ran("a", 100, 1, 1), cut(ran("b", 200, 2, 1), serialcheck.Effect)}, "has no effect", 0},
		"out of order":               {[][]event{both, ran("a", 100, 2, 1), ran("b", 200, 1, 1)}, "is done after", 0},
		"side by side":               {[][]event{both, ran("a", 100, 1, 1), ran("b", 150, 2, 1)[:0], ran("b", 103, 2, 1)}, "starts while", 0},
		"side by side, by the dead":  {[][]event{both, cut(ran("a", 100, 1, 1), serialcheck.Effect, serialcheck.Returned), killed("a", 150), ran("b", 200, 1, 2), ran("b", 300, 2, 1)}, "", 0},
		"effect of the superseded":   {[][]event{both, ran("a", 100, 1, 1), {{At: 250, Kind: serialcheck.Paused, Process: "a"}}, ran("b", 102, 1, 2), ran("b", 200, 2, 1)}, "its effect after", 1},
		"too close":                  {[][]event{both, ran("a", 100, 1, 1), ran("b", 109, 2, 1)}, "want 10ns", 0},
		"an attempt that counts not": {[][]event{both, cut(ran("a", 100, 1, 1), serialcheck.Effect, serialcheck.Returned), killed("a", 150), ran("b", 200, 1, 1), ran("b", 300, 2, 1)}, "comes after attempt", 0},
		"a token that falls":         {[][]event{both, ran("a", 100, 1, 1), {{At: 200, Kind: serialcheck.Started, Process: "b", Key: "k", Seq: 2, Attempt: 1, Token: 5}, {At: 201, Kind: serialcheck.Effect, Process: "b", Key: "k", Seq: 2, Attempt: 1}}}, "with token", 0},
		"twice after a death":        {[][]event{both, ran("a", 100, 1, 1), killed("a", 150), ran("b", 200, 1, 2), ran("b", 300, 2, 1)}, "", 1},
		"begun after a pause":        {[][]event{both, ran("b", 100, 1, 2), cut(ran("a", 150, 1, 1), serialcheck.Effect, serialcheck.Returned, serialcheck.Started), {{At: 150, Kind: serialcheck.Started, Process: "a", Key: "k", Seq: 1, Attempt: 1, Token: 5}, {From: 90, At: 149, Kind: serialcheck.Paused, Process: "a"}}, ran("b", 200, 2, 1)}, "", 0},
		"begun late":                 {[][]event{both, ran("b", 100, 1, 2), {{At: 150, Kind: serialcheck.Started, Process: "a", Key: "k", Seq: 1, Attempt: 1, Token: 5}}, ran("b", 200, 2, 1)}, "comes after attempt", 0},
		"twice":                      {[][]event{both, ran("a", 100, 1, 1), ran("b", 200, 1, 2), ran("b", 300, 2, 1)}, "two effects", 1},
		"what nobody has asked for":  {[][]event{both, ran("a", 100, 1, 1), ran("b", 200, 2, 1), ran("b", 300, 3, 1)}, "never accepted", 0},
		"dead and done":              {[][]event{both, ran("a", 100, 1, 1), ran("b", 200, 2, 1), {{At: 300, Kind: serialcheck.Dead, Key: "k", Seq: 2}}}, "is dead and", 0},
		"dead":                       {[][]event{both, ran("a", 100, 1, 1), {{At: 300, Kind: serialcheck.Dead, Key: "k", Seq: 2}}}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var all []event
			for _, h := range tc.history {
				all = append(all, h...)
			}
			r := serialcheck.Check(all, 10*time.Nanosecond)
			text := strings.Join(r.Faults, "; ")
			if (text == "") != (tc.want == "") || !strings.Contains(text, tc.want) || r.Duplicates != tc.twice {
				t.Errorf("faults: %q, %d duplicates; want %q, %d", text, r.Duplicates, tc.want, tc.twice)
			}
		})
	}
}

func TestLastLineMayBeAPart(t *testing.T) {
	all, err := serialcheck.Read(strings.NewReader(`{"at":1,"kind":"killed"}` + "\n" + `{"at":2,"ki`))
	if err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
