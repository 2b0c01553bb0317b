package main

import (
	"cmp"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestCommandRefusesWhatCannotWork(t *testing.T) {
	for want, l := range map[string]laboratory{
		"there is no such fault":   {Faults: "flod"},
		"-faults error parsing":    {Faults: "("},
		"there are late-deadline":  {Mutant: "nobody"},
		"there is no such store":   {Store: "paper"},
		"only the store redis has": {Store: "postgres", Mutant: "blind-release"},
	} {
		l.Progress = t.Logf
		if err := l.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q in it", l, err, want)
		}
	}
}

func TestWithoutRedisThereIsNothingToBreak(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := (laboratory{Progress: t.Logf}).run(t.Context()); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("run: %v; want that redis-server was not found", err)
	}
}

func TestScheduleIsTheSeedsAndHasEachFaultOncePerRound(t *testing.T) {
	var first []string
	for _, seed := range []uint64{1, 1, 2} {
		s := newSchedule(common, seed)
		var names []string
		for range 3 {
			var round []string
			for len(round) < len(common) {
				together, gap := s.next()
				if gap < 200*time.Millisecond || gap > 600*time.Millisecond {
					t.Errorf("%v between two faults", gap)
				}
				if n := len(together); n > 2 || n == 2 && together[0].aimed() == together[1].aimed() {
					t.Errorf("at a time: %v", together)
				}
				for _, f := range together {
					round = append(round, f.Name)
				}
			}
			names = append(names, round...)
			slices.Sort(round)
			if n := len(slices.Compact(round)); n != len(common) {
				t.Errorf("%d of %d faults in a round", n, len(common))
			}
		}
		if first == nil {
			first = names
		}
		if same := slices.Equal(first, names); same != (seed == 1) {
			t.Errorf("seed %d gives the schedule of seed 1: %v", seed, same)
		}
	}
}

func TestEachStoreHasWhatItsMutantsNeed(t *testing.T) {
	for _, where := range stores {
		all := mutantsOf(where)
		if where.Mutants != nil && len(all) != len(where.Mutants) {
			t.Errorf("%s has mutants %v, of which there are %d", where.Kind, where.Mutants, len(all))
		}
		for _, m := range all {
			if _, err := planOf(where, m, ""); err != nil {
				t.Errorf("%s on %s: %v", m.Name, where.Kind, err)
			}
		}
		if _, err := faultsOf(where, ""); err != nil || where.About == "" {
			t.Errorf("%s is %q and has no faults: %v", where.Kind, where.About, err)
		}
	}
}

func TestEachMutantHasItsFaultsAndBreaksAPromise(t *testing.T) {
	for _, m := range mutant.All {
		where, err := storeNamed(cmp.Or(m.Only, string(server.Redis)))
		if err != nil {
			t.Fatal(err)
		}
		p, err := planOf(where, m, "")
		if err != nil {
			t.Error(err)
		}
		if len(p.Faults) != len(m.Faults) {
			t.Errorf("%s has %d faults in its plan, want %v", m.Name, len(p.Faults), m.Faults)
		}
		for _, b := range m.Breaks {
			if !slices.ContainsFunc(properties, func(p property) bool { return p.Name == b }) {
				t.Errorf("%s breaks %s, which nobody promised", m.Name, b)
			}
		}
		if found, ok := mutant.Named(m.Name); !ok || len(m.Breaks) == 0 || found.Bug != m.Bug {
			t.Errorf("%s is not to be found by its name, or breaks nothing", m.Name)
		}
	}
}

// paper is a run of few events: a holder that was stopped writes late, and two have a lock.
func paper(mutant string) *Run {
	const s = int64(time.Second)
	claim := func(process int, token, from, to int64) []history.Event {
		return []history.Event{
			{Process: process, Client: 1, Key: "account-1", Op: history.Acquire, Token: token, Call: from, Return: from, Limit: from, Deadline: to},
			{Process: process, Client: 1, Key: "account-1", Op: history.Release, Token: token, Call: to},
		}
	}
	events := slices.Concat(claim(1, 1024, s, 2*s), claim(2, 2048, 3*s/2, 3*s), []history.Event{
		{Process: 1, Op: history.Fault, Name: "pause", Outage: true, Call: s, Return: 3 * s},
		{Process: 1, Client: 1, Key: "account-1", Op: history.Write, Token: 1024, Call: 3 * s, Return: 3 * s, Error: history.Stale},
	})
	return &Run{Store: stores[0], Seed: 7, Mutant: mutant, Events: events, Report: check.All(events, stores[0].Rules)}
}

func TestResultsSayWhatHappenedAndShowIt(t *testing.T) {
	folder := t.TempDir()
	r := results{Healthy: paper("")}
	for _, m := range mutant.All {
		r.Mutants = append(r.Mutants, paper(m.Name))
	}
	if err := r.write(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stores[0].faults() {
		if !strings.Contains(string(text), "| "+f.Name+" | ") {
			t.Errorf("the fault %s is not in the page", f.Name)
		}
	}
	for _, m := range mutant.All {
		if !strings.Contains(string(text), "| "+m.Name+" | "+m.Bug) {
			t.Errorf("the mutant %s is not in the page", m.Name)
		}
	}
	for _, want := range []string{"seed 7", "| S1 | ", "(pause.svg)", "(mutant.svg)", "**no**", "| yes |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the page:\n%s", want, text)
		}
	}
	for _, name := range []string{"pause.svg", "mutant.svg"} {
		drawn, err := os.Open(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(drawn); err == nil; {
			_, err = d.Token()
		}
		if cerr := drawn.Close(); !errors.Is(err, io.EOF) || cerr != nil {
			t.Errorf("%s: %v, %v", name, err, cerr)
		}
	}
}

func TestCommandRunsOneMutantAndWritesItsResults(t *testing.T) {
	testservers.Need(t, "redis-server")
	t.Parallel()
	out := filepath.Join(t.TempDir(), "new", "folder")
	if err := (laboratory{Mutant: "kept-token", Seed: 1, Out: out, Progress: t.Logf}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "faults.md"))
	if err != nil || !strings.Contains(string(text), "| kept-token |") || strings.Contains(string(text), "acquisitions**") {
		t.Errorf("the page is %q, %v", text, err)
	}
}
