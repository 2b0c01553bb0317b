package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryFigureSaysSomethingOfEveryStore keeps a figure from being left out where it
// does not apply.
func TestEveryFigureSaysSomethingOfEveryStore(t *testing.T) {
	if len(figures) != 20 {
		t.Errorf("there are %d figures", len(figures))
	}
	all := complete(nil, trials, reasons)
	for n, f := range figures {
		// What is asked of a part of a driver's servers is an answer, too.
		for _, d := range stores {
			said := slices.ContainsFunc(all, func(r row) bool { return r.Figure == n+1 && r.Driver == d })
			if !said {
				t.Errorf("figure %d (%s) says nothing of %s", n+1, f.What, d)
			}
		}
	}
	for _, r := range all {
		switch {
		case !slices.Contains(drivers, r.Driver), r.Figure < 1, r.Figure > len(figures):
			t.Errorf("%+v is of no driver or no figure", r)
		case r.Outcome == notApplying && r.Text == "":
			t.Errorf("%+v says no reason", r)
		}
	}
}

func TestCommandsAreToldAndApart(t *testing.T) {
	seen := map[string]bool{}
	for _, tr := range trials {
		c := tr.Driver + ": " + tr.Command()
		if seen[c] {
			t.Errorf("%s is there twice", c)
		}
		seen[c] = true
	}
	tr := trial{Driver: single, Env: []string{"A=1"}, Args: []string{"go", "test", "-run", "^It's$", "./x"}}
	if got, want := tr.Command(), `A=1 go test -run '^It'\''s$' ./x`; got != want {
		t.Errorf("the command is %s, want %s", got, want)
	}
}

func TestWhatIsToldDecidesTheOutcome(t *testing.T) {
	failure := errors.New("exit status 1")
	for name, tt := range map[string]struct {
		tests   bool
		failure error
		said    string
		want    outcome
		text    string
	}{
		"a test that told": {
			tests: true, want: reached, text: "3 kills; 4 kills",
			said: `{"Action":"attr","Test":"TestX","Key":"figure-7","Value":"3 kills"}
{"Action":"attr","Test":"TestX","Key":"figure-8","Value":"nothing of it"}
{"Action":"attr","Test":"TestY","Key":"figure-7","Value":"4 kills"}
{"Action":"pass","Test":"TestX"}
`,
		},
		"a test that told and failed": {
			tests: true, failure: failure, want: fellShort, text: "TestX/a: x_test.go:3: too late (3 kills)",
			said: `{"Action":"output","Test":"TestX/a","Output":"=== RUN   TestX/a\n"}
{"Action":"output","Test":"TestX/a","Output":"redis: pool.go:770: connection refused\n"}
{"Action":"output","Test":"TestX/a","Output":"    x_test.go:3: too late\n"}
{"Action":"output","Test":"TestX/a","Output":"    x_test.go:4: and more\n"}
{"Action":"attr","Test":"TestX","Key":"figure-7","Value":"3 kills"}
{"Action":"fail","Test":"TestX/a"}
{"Action":"fail","Test":"TestX"}
`,
		},
		"another test failed": {
			tests: true, failure: failure, want: reached, text: "3 kills",
			said: `{"Action":"attr","Test":"TestX/a","Key":"figure-7","Value":"3 kills"}
{"Action":"pass","Test":"TestX/a"}
{"Action":"fail","Test":"TestX/b"}
{"Action":"fail","Test":"TestX"}
`,
		},
		"no test failed, but the command": {
			tests: true, failure: failure, want: fellShort, text: "goleak: a goroutine (3 kills)",
			said: `{"Action":"attr","Test":"TestX","Key":"figure-7","Value":"3 kills"}
{"Action":"output","Output":"goleak: a goroutine\n"}
{"Action":"fail"}
`,
		},
		"what does not compile": {
			tests: true, failure: failure, want: fellShort, text: "x_test.go:1:1: expected 'package'",
			said: `{"ImportPath":"x","Action":"build-output","Output":"# x\n"}
{"ImportPath":"x","Action":"build-output","Output":"x_test.go:1:1: expected 'package'\n"}
`,
		},
		"a panic": {
			tests: true, failure: failure, want: fellShort, text: "TestX: panic: a bug",
			said: `{"Action":"output","Test":"TestX","Output":"    x_test.go:3: all is well\n"}
{"Action":"output","Test":"TestX","Output":"panic: a bug\n"}
{"Action":"fail","Test":"TestX"}
`,
		},
		"a test that was skipped": {
			tests: true, want: fellShort, text: "the command told nothing of it: TestX was skipped: x_test.go:3: needs redis-server",
			said: `{"Action":"output","Test":"TestX","Output":"    x_test.go:3: needs redis-server\n"}
{"Action":"skip","Test":"TestX"}
`,
		},
		"no such test": {tests: true, want: fellShort, text: "the command told nothing of it", said: `{"Action":"pass"}`},
		"a reason": {
			tests: true, want: notApplying, text: "does not apply: there are no tokens",
			said: `{"Action":"attr","Test":"TestX","Key":"figure-7","Value":"does not apply: there are no tokens"}`,
		},
		"another program": {
			want: reached, text: "8 of 8 bugs",
			said: "working\n=== ATTR  faults figure-7 8 of 8 bugs\n",
		},
		"another program that failed": {
			failure: failure, want: fellShort, text: "one bug was not caught (7 of 8 bugs)",
			said: "working\n=== ATTR  faults figure-7 7 of 8 bugs\none bug was not caught\nexit status 1",
		},
		"a program that is not there": {failure: failure, want: fellShort, text: "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &report{Tests: tt.tests, Progress: t.Logf}
			for len(tt.said) > 0 { // it comes in pieces
				n := min(len(tt.said), 17)
				_, _ = r.Write([]byte(tt.said[:n])) // never fails
				tt.said = tt.said[n:]
			}
			r.end()
			if got, text := r.outcome(7, tt.failure); got != tt.want || text != tt.text {
				t.Errorf("%s: %q; want %s: %q", got, text, tt.want, tt.text)
			}
		})
	}
}

func TestTrialRunsItsCommandToTheEnd(t *testing.T) {
	say := trial{single, []int{7, 8}, []string{"WORD=kills"}, []string{"sh", "-c", `echo "=== ATTR  it figure-7 3 $WORD"; echo "=== ATTR  it figure-9 4 $WORD"; exit $CODE`}}
	for code, want := range map[string][]outcome{"0": {reached, fellShort, reached}, "1": {fellShort, fellShort, fellShort}} {
		tr := say
		tr.Env = append(slices.Clone(say.Env), "CODE="+code)
		rows, err := tr.run(t.Context(), time.Now(), t.Logf)
		var got []outcome
		for _, r := range rows {
			got = append(got, r.Outcome)
		}
		if err != nil || !slices.Equal(got, want) || !strings.Contains(rows[0].Text, "3 kills") || rows[2].Figure != 9 || rows[0].Command != tr.Command() {
			t.Errorf("%+v, %v; want %v", rows, err, want)
		}
	}
}

func TestInterruptedTrialEndsWithWhatItStarted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	told := func(string, ...any) { interrupt() }
	tr := trial{single, []int{7}, nil, []string{"sh", "-c", `echo "=== ATTR  it figure-7 begun"; sleep 600 & wait`}}
	began := time.Now()
	if rows, err := tr.run(ctx, began, told); !errors.Is(err, context.Canceled) || rows != nil {
		t.Errorf("%+v, %v", rows, err)
	}
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("it took %v to end", took)
	}
}

func TestRerunReplacesItsRowsAndNoOthers(t *testing.T) {
	folder := t.TempDir()
	crowd, kills := trials[slices.IndexFunc(trials, func(tr trial) bool { return tr.Figures[0] == 3 })], trials[slices.IndexFunc(trials, func(tr trial) bool { return tr.Figures[0] == 7 })]
	at := func(tr trial, o outcome, text string) []row {
		return []row{{Figure: tr.Figures[0], Driver: tr.Driver, Command: tr.Command(), Outcome: o, Text: text, Date: time.Unix(1, 0).UTC()}}
	}
	all := replace(nil, crowd, at(crowd, reached, "a million"))
	all = replace(all, kills, at(kills, fellShort, "too late by | far"))
	all = append(all, row{Figure: 7, Driver: single, Command: "of former times", Outcome: reached, Date: time.Unix(1, 0).UTC()})
	if err := write(folder, all); err != nil {
		t.Fatal(err)
	}
	all, err := load(folder)
	if err != nil || len(all) != 2 {
		t.Fatalf("what was written is read as %+v, %v", all, err)
	}
	if err := write(folder, replace(all, kills, at(kills, reached, "in time"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "figures.md"))
	if err != nil {
		t.Fatal(err)
	}
	for want, there := range map[string]bool{
		"reached: a million": true, "reached: in time": true, "by | far": false, `by \| far`: false, "not run yet": true, "of former times": false,
		"does not apply: " + strings.ReplaceAll(reasons[0].Text, "|", `\|`): true,
		"`" + strings.ReplaceAll(crowd.Command(), "|", `\|`) + "`":          true,
	} {
		if strings.Contains(string(text), want) != there {
			t.Errorf("%q is in the page: %v; want %v", want, !there, there)
		}
	}
}

func TestChoiceIsByNumberAndDriver(t *testing.T) {
	for _, tt := range []struct {
		only, on string
		want     int // of which there are at least so many, and none that does not match
		fault    string
	}{
		{only: "7", on: "", want: 6},
		{only: "7", on: "redislock", want: 1},
		{only: "1", on: "redislock", want: 1},
		{only: "77", fault: "nothing is to be run"},
		{only: "(", fault: "-only"},
		{on: "(", fault: "-driver"},
	} {
		chosen, err := choose(trials, tt.only, tt.on)
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("-only %q -driver %q: %v; want %q", tt.only, tt.on, err, tt.fault)
			}
			continue
		}
		if err != nil || len(chosen) != tt.want {
			t.Errorf("-only %q -driver %q: %d trials, %v; want %d", tt.only, tt.on, len(chosen), err, tt.want)
		}
	}
}

func TestCommandNeedsAFolder(t *testing.T) {
	if err := show(t.Context(), "", "", ""); err == nil || !strings.Contains(err.Error(), "-out") {
		t.Errorf("without a folder: %v", err)
	}
}
