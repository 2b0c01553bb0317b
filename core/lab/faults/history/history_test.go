package history_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEventsComeBackAsTheyWereWritten(t *testing.T) {
	folder := t.TempDir()
	want := []history.Event{
		{Process: 1, Client: 2, Key: "k", Op: history.Acquire, Token: 1 << 60, TTL: 5, Call: 1 << 61, Return: 4, Limit: 5, Deadline: 6, Error: "x"},
		{Process: 2, Op: history.Fault, Name: "flush", Lossy: true, Outage: true, Call: 1},
	}
	for i, e := range want {
		log, err := history.Create(filepath.Join(folder, string(rune('1'+i))+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		log.Add(e)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := history.Load(folder)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v, %v; want %+v", got, err, want)
	}
}

func TestLineThatWasCutOffIsLeftOutAndOtherBadOnesAreRefused(t *testing.T) {
	for text, want := range map[string]int{
		`{"process":1,"op":"late","call":1}` + "\n" + `{"process":1,"op":"la`: 1,
		"":          0,
		`{"proc`:    0,
		"{}\n":      -1,
		"{\n{}\n":   -1,
		"nothing\n": -1,
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "1.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := history.Load(folder)
		if bad := want < 0; bad != (err != nil) || !bad && len(got) != want {
			t.Errorf("%q: %d events, %v; want %d (-1: an error)", text, len(got), err, want)
		}
	}
}

func TestUntilKeepsWhatHadHappened(t *testing.T) {
	events := []history.Event{
		{Op: history.Acquire, Call: 1, Return: 5},
		{Op: history.Acquire, Call: 1, Return: 6},
		{Op: history.Release, Call: 5},
		{Op: history.Release, Call: 6},
	}
	if got := history.Until(events, 5); len(got) != 2 || got[0].Return != 5 || got[1].Call != 5 {
		t.Errorf("until 5: %+v", got)
	}
}

func TestAtIsNeverTooLate(t *testing.T) {
	for range 1000 {
		before := history.Now()
		now := time.Now()
		after := history.Now()
		if at := history.At(now); at > after {
			t.Fatalf("a time between %d and %d is %d", before, after, at)
		}
	}
}
