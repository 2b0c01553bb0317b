package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"
)

// resultsFile has the rows of all that was run.
const resultsFile = "figures.json"

// load returns the rows that are in the folder, none if there is no file.
func load(folder string) (all []row, err error) {
	text, err := os.ReadFile(filepath.Join(folder, resultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the results that are there: %w", err)
	}
	return all, nil
}

// replace puts the rows of a trial in the place of those that it had.
func replace(all []row, t trial, rows []row) []row {
	all = slices.DeleteFunc(all, func(r row) bool { return r.Driver == t.Driver && r.Command == t.Command() })
	return append(all, rows...)
}

// complete returns the rows of what the plan has, as the table shows them: those that were
// run, those that were not yet, and the reasons why others never are.
func complete(all []row, plan []trial, reasons []reason) (out []row) {
	for _, t := range plan {
		for _, f := range t.Figures {
			r := row{Figure: f, Driver: t.Driver, Command: t.Command(), Outcome: notRun}
			same := func(o row) bool { return o.Figure == f && o.Driver == r.Driver && o.Command == r.Command }
			if i := slices.IndexFunc(all, same); i >= 0 {
				r = all[i]
			}
			out = append(out, r)
		}
		for _, r := range all {
			if r.Driver == t.Driver && r.Command == t.Command() && !slices.Contains(t.Figures, r.Figure) {
				out = append(out, r)
			}
		}
	}
	for _, why := range reasons {
		for _, d := range why.Drivers {
			out = append(out, row{Figure: why.Figure, Driver: d, Outcome: notApplying, Text: why.Text})
		}
	}
	slices.SortStableFunc(out, func(a, b row) int {
		return cmp.Or(a.Figure-b.Figure, slices.Index(drivers, a.Driver)-slices.Index(drivers, b.Driver))
	})
	return out
}

//go:embed figures.md.tmpl
var pageText string

var page = template.Must(template.New("figures").Funcs(template.FuncMap{
	"cell": func(s string) string { return strings.ReplaceAll(s, "|", `\|`) },
	"day":  func(t time.Time) string { return t.Format(time.DateOnly) },
	"took": func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(time.Second)).Round(time.Second)
	},
}).Parse(pageText))

// write writes figures.json, which has what was run, and figures.md, which has all that
// there is to say.
func write(folder string, all []row) error {
	shown := complete(all, trials, reasons)
	kept := slices.DeleteFunc(slices.Clone(shown), func(r row) bool { return r.Date.IsZero() })
	raw, err := json.MarshalIndent(kept, "", "\t")
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := page.Execute(&text, contents(shown)); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, resultsFile), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(folder, "figures.md"), []byte(text.String()), 0o644))
}

// section is what the page says of one figure.
type section struct {
	figure
	Number int
	Rows   []row
	Cells  []string // an overview, in the order of the drivers
}

type pageContents struct {
	Drivers  []string
	Sections []section
	Counts   map[outcome]int
}

func contents(shown []row) pageContents {
	c := pageContents{Drivers: drivers, Counts: make(map[outcome]int)}
	for i, f := range figures {
		s := section{figure: f, Number: i + 1}
		for _, r := range shown {
			if r.Figure == s.Number {
				s.Rows = append(s.Rows, r)
				c.Counts[r.Outcome]++
			}
		}
		for _, d := range drivers {
			s.Cells = append(s.Cells, overview(s.Rows, d))
		}
		c.Sections = append(c.Sections, s)
	}
	return c
}

// overview is the worst of a driver's outcomes.
func overview(rows []row, driver string) string {
	cell := ""
	for _, o := range []struct {
		outcome
		Text string
	}{{notApplying, "–"}, {reached, "reached"}, {notRun, "not run yet"}, {fellShort, "**fell short**"}} {
		if slices.ContainsFunc(rows, func(r row) bool { return r.Driver == driver && r.Outcome == o.outcome }) {
			cell = o.Text
		}
	}
	return cell
}

// machine is where it was counted, and how busy that was, where there is a /proc to say so:
// how many processes wanted a core, in the average of the last minute.
func machine() string {
	m := fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ := strings.Cut(string(text), " ")
		m += ", load " + load
	}
	return m
}
