package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
)

// results are the runs of a laboratory.
type results struct {
	Healthy *Run // nil if only a mutant was run
	Mutants []*Run
}

//go:embed results.md.tmpl
var resultsText string

var resultsPage = template.Must(template.New("results").Funcs(template.FuncMap{
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) },
	"ms":      func(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond)) },
	"join":    func(s []string) string { return strings.Join(s, ", ") },
}).Parse(resultsText))

// property is one that was judged.
type property struct{ Name, Text string }

var properties = []property{
	{"S1", "Claims of a key are disjoint, but for those of readers, and of a semaphore's holders as far as it has room; what a reader reads does not change. A claim lasts from the return of the acquisition to the call of the release, the word that the lease is lost, or its deadline, whichever is first."},
	{"S2", "Who acquires after another one has acquired, with whom he could not hold together, gets the larger token, also after the store has lost its data."},
	{"S3", "The guard admits no token below the largest it has seen (of readers, the largest of a writer), refuses no other, and no increment is lost."},
	{"keep", "A key that is to stay taken for a while after it was granted does, also when its holder releases it sooner."},
	{"turn", "A key that is served strictly in turn goes to who came first, as far as he could reach the store and the other came 500 ms later."},
	{"L1", "A key that is free and waited for is granted within the driver's bound of a lost wake-up, T more after a crash, and so on: see the package check."},
	{"L3", "An acquisition returns within 50 ms of when it had to."},
	{"L4", "A lease is not renewed once its release was answered."},
	{"L5", "A holder hears within 50 ms of its deadline that its lease is lost."},
	{"linear", "Porcupine finds an order of all operations on a key in which a lock with a guarded counter would have answered as it did."},
	{"work", "There was enough work before the first fault for it to hit something, and there was work after the last."},
}

// outcome is a row of a table.
type outcome struct {
	property
	Violations int
}

// afterFault is one too.
type afterFault struct {
	fault
	Times   int
	Longest string // a key was free and waited for
	Loses   bool   // data, on that store
	Twice   int    // two held a lock at once
}

// caughtMutant is one too.
type caughtMutant struct {
	mutant.Mutant
	Run    *Run
	Caught bool
	First  string // violation of what it breaks
	Kinds  []string
}

// write writes the results into the folder.
func (r results) write(folder string) error {
	files := map[string]string{}
	page := struct {
		Machine    string
		Healthy    *Run
		Properties []outcome
		Lossy      bool // the store has lost data
		Faults     []afterFault
		Mutants    []caughtMutant
		Pictures   map[string]string
	}{
		Machine: fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
		Healthy: r.Healthy, Pictures: map[string]string{},
	}
	draw := func(name string, run *Run, p check.Picture, found bool) error {
		if !found {
			return nil
		}
		drawn, err := check.Draw(p, run.Events, run.Store.Rules)
		files[name+".svg"] = drawn
		page.Pictures[name] = name + ".svg"
		return err
	}
	if h := r.Healthy; h != nil {
		for _, p := range properties {
			page.Properties = append(page.Properties, outcome{p, count(h.Violations, p.Name)})
		}
		for _, f := range append(h.Store.faults(), unasked) {
			if f.Name == unasked.Name && h.Figures.Faults[f.Name] == 0 {
				continue
			}
			row := afterFault{fault: f, Times: h.Figures.Faults[f.Name], Loses: h.Store.loses(f), Twice: h.Figures.Lost[f.Name]}
			page.Lossy = page.Lossy || row.Loses
			if d, ok := h.Figures.Longest["free and waited for, after "+f.Name]; ok {
				row.Longest = fmt.Sprint(d.Round(time.Millisecond))
			}
			page.Faults = append(page.Faults, row)
		}
		p, found := paused(h)
		if err := draw("pause", h, p, found); err != nil {
			return err
		}
		p, found = doubled(h)
		if err := draw("double", h, p, found); err != nil {
			return err
		}
	}
	for _, run := range r.Mutants {
		m, _ := mutant.Named(run.Mutant)
		page.Mutants = append(page.Mutants, row(m, run))
		if page.Pictures["mutant"] == "" {
			p, found := overlapped(m, run)
			if err := draw("mutant", run, p, found); err != nil {
				return err
			}
		}
	}
	var text strings.Builder
	if err := resultsPage.Execute(&text, page); err != nil {
		return err
	}
	files["faults.md"] = text.String()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func row(m mutant.Mutant, run *Run) caughtMutant {
	c := caughtMutant{Mutant: m, Run: run, Caught: caught(m, run)}
	for _, v := range run.Violations {
		if slices.Contains(m.Breaks, v.Property) && c.First == "" {
			c.First = v.String()
		}
		if !slices.Contains(c.Kinds, v.Property) {
			c.Kinds = append(c.Kinds, v.Property)
		}
	}
	slices.Sort(c.Kinds)
	return c
}

func count(all []check.Violation, name string) int {
	n := 0
	for _, v := range all {
		if v.Property == name {
			n++
		}
	}
	return n
}

// paused is a picture of a holder that was stopped, and of its late write.
func paused(r *Run) (p check.Picture, found bool) {
	for _, f := range r.Events {
		if f.Op != history.Fault || f.Name != "pause" {
			continue
		}
		for _, e := range r.Events {
			if e.Op == history.Write && e.Error == history.Stale && e.Process == f.Process && f.Return-1e6 <= e.Call && e.Call < f.Return+1e9 {
				return check.Picture{
					Title: fmt.Sprintf("A holder is stopped for %v, and writes when it goes on", 3*r.Store.Longest),
					Captions: []string{
						fmt.Sprintf("Process %d is stopped in its critical section. Its lease ends by its deadline, and the next process gets the lock.", f.Process),
						"It knows nothing of that when it goes on, and writes. Its fencing token is smaller than those that have come since: the guard refuses the write.",
					},
					Key: e.Key, From: f.Call - 3e8, To: f.Return + 3e8,
				}, true
			}
		}
	}
	return p, false
}

// doubled is a picture of two who held a lock at once after a failover that lost writes:
// of those for the longest time.
func doubled(r *Run) (p check.Picture, found bool) {
	var longest check.Double
	for _, d := range r.Doubles {
		if d.Fault == lostWrites && d.To-d.From > longest.To-longest.From {
			longest, found = d, true
		}
	}
	p = check.Picture{
		Title: "A failover loses writes, and two hold a lock at once",
		Captions: []string{
			"The replica that becomes the master has not heard of the lease. It grants the lock again while the first holder still has it,",
			"until that one is told so or its deadline comes. Its fencing token is the smaller one: the guard would refuse what it writes then.",
		},
		Key: longest.Key, From: longest.From - 1e9, To: longest.To + 5e8,
	}
	for _, f := range r.Events {
		if f.Op == history.Fault && f.Name == lostWrites && f.Call < longest.From && longest.From < f.Return+int64(r.Store.Longest) {
			p.From = f.Call - 2e8
		}
	}
	return p, found
}

// overlapped is a picture of two holders at once.
func overlapped(m mutant.Mutant, r *Run) (p check.Picture, found bool) {
	for _, v := range r.Violations {
		if v.Property != "S1" {
			continue
		}
		p = check.Picture{
			Title:    fmt.Sprintf("The mutant %s: %s", m.Name, m.Bug),
			Captions: []string{"Two processes have the lock at once, which the laboratory finds:", v.String()},
			Key:      v.Key, From: v.From - 1e9, To: v.To + 3e8,
		}
		for _, f := range r.Events {
			if f.Op == history.Fault && f.Call < v.From && v.From-f.Call < 3e9 {
				p.From = f.Call - 1e8
			}
		}
		return p, true
	}
	return p, false
}
