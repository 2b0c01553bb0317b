package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of what does not build
	Test       string
	Output     string
	Elapsed    float64
}

// test is a test of a package; its name is empty for what is not of a test.
type test struct{ pkg, name string }

func (t test) String() string {
	return strings.TrimPrefix(strings.TrimPrefix(t.pkg, module), "/") + " " + cmp.Or(t.name, "(the package)")
}

const module = "github.com/lockaround/lockaround"

// results is what tests have come to. One with subtests is not counted itself, unless it
// fails by itself.
type results struct {
	began  time.Time // zero if nobody watches
	output map[test]*strings.Builder
	parent map[test]bool // has subtests
	ends   map[test]string
	order  []test
}

// add takes in an event, and returns the lines that somebody who watches wants to read.
func (r *results) add(line []byte) (told []string) {
	if r.ends == nil {
		r.output, r.parent, r.ends = make(map[test]*strings.Builder), make(map[test]bool), make(map[test]string)
	}
	var e event
	if json.Unmarshal(line, &e) != nil {
		return []string{strings.TrimRight(string(line), "\n")} // not of a test
	}
	t := test{cmp.Or(e.Package, e.ImportPath), e.Test}
	switch e.Action {
	case "start", "run":
		r.end(t, "fail") // unless it ends otherwise
		if i := strings.LastIndexByte(t.name, '/'); i >= 0 {
			r.parent[test{t.pkg, t.name[:i]}] = true
		}
	case "output", "build-output":
		b := r.output[t]
		if b == nil {
			b = new(strings.Builder)
			r.output[t] = b
		}
		b.WriteString(e.Output)
	case "build-fail": // the package's end follows
		return []string{r.said(t)}
	case "pass", "fail", "skip":
		if e.Action == "pass" {
			delete(r.output, t)
		}
		if e.Action == "fail" && t.name != "" && !r.parent[t] {
			told = append(told, fmt.Sprintf("--- FAIL: %s (%.2fs)\n%s", t, e.Elapsed, r.said(t)))
		}
		r.end(t, e.Action)
		if t.name == "" {
			told = append(told, r.packageLine(t, e)...)
		}
	}
	return told
}

func (r *results) end(t test, how string) {
	if _, known := r.ends[t]; !known {
		r.order = append(r.order, t)
	}
	r.ends[t] = how
}

// said is what a test printed.
func (r *results) said(t test) string {
	if b := r.output[t]; b != nil {
		return strings.TrimRight(b.String(), "\n")
	}
	return ""
}

func (r *results) packageLine(t test, e event) (told []string) {
	n := r.count(func(other test) bool { return other.pkg == t.pkg })
	name := strings.TrimSuffix(t.String(), " (the package)")
	if e.Action == "skip" || n == (counts{}) {
		return nil // there are no tests
	}
	if e.Action == "fail" && n.failed <= 1 && r.byItself(t) {
		told = append(told, r.said(t))
	}
	word := map[string]string{"pass": "ok  ", "fail": "FAIL"}[e.Action]
	return append(told, fmt.Sprintf("[%4.0fs] %s %-40s %6.1fs  %s", time.Since(r.began).Seconds(), word, name, e.Elapsed, n))
}

// counts are numbers of tests.
type counts struct{ passed, failed, skipped int }

func (n counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", n.passed, n.failed, n.skipped)
}

func (r *results) count(which func(test) bool) (n counts) {
	for _, t := range r.order {
		if !which(t) {
			continue
		}
		switch end := r.ends[t]; {
		case end == "fail" && r.byItself(t):
			n.failed++
		case t.name == "" || r.parent[t]:
		case end == "pass":
			n.passed++
		case end == "skip":
			n.skipped++
		}
	}
	return n
}

// byItself reports whether a test fails, and not because a part of it does.
func (r *results) byItself(t test) bool {
	if r.ends[t] != "fail" {
		return false
	}
	for other, end := range r.ends {
		part := t.name == "" && other.name != "" || t.name != "" && strings.HasPrefix(other.name, t.name+"/")
		if end == "fail" && other.pkg == t.pkg && part {
			return false
		}
	}
	return true
}

// failed are those that fail by themselves.
func (r *results) failed() (all []test) {
	for _, t := range r.order {
		if r.byItself(t) {
			all = append(all, t)
		}
	}
	return all
}

var place = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*)$`)

// skipped tells why tests were skipped, the commonest reason first.
func (r *results) skipped() (all []string) {
	reasons := make(map[string]int)
	for _, t := range r.order {
		if r.ends[t] != "skip" || t.name == "" || r.parent[t] {
			continue
		}
		reason := "no reason given"
		if m := place.FindAllStringSubmatch(r.said(t), -1); m != nil {
			reason = m[len(m)-1][1]
		}
		reasons[reason]++
	}
	for _, reason := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	}) {
		all = append(all, fmt.Sprintf("%5d skipped: %s", reasons[reason], reason))
	}
	return all
}

// tell writes who failed, who was skipped, and how many there are. The code is 1 unless
// tests have passed and none has failed.
func (r *results) tell(out io.Writer) (code int) {
	for _, line := range r.skipped() {
		_, _ = fmt.Fprintln(out, line)
	}
	for _, t := range r.failed() {
		_, _ = fmt.Fprintln(out, " failed:", t)
	}
	n := r.count(func(test) bool { return true })
	_, _ = fmt.Fprintln(out, "tests:", n)
	if n.failed > 0 || n.passed == 0 {
		return 1
	}
	return 0
}

// read reads the logs of a folder.
func read(folder string) (*results, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no log in %s", folder)
	}
	r := new(results)
	for _, name := range files {
		if err := r.readFile(name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *results) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is read
	// Two logs may have the same package, at other releases of what it needs.
	one := new(results)
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			one.add(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	r.merge(one, strings.TrimSuffix(filepath.Base(name), ".json"))
	return nil
}

// merge takes in the results of a log with that name.
func (r *results) merge(one *results, name string) {
	if r.ends == nil {
		r.add([]byte("{}"))
	}
	for _, t := range one.order {
		as := test{t.pkg, t.name}
		if _, known := r.ends[as]; known {
			as.pkg += " (" + name + ")"
		}
		r.order = append(r.order, as)
		r.ends[as], r.parent[as], r.output[as] = one.ends[t], one.parent[t], one.output[t]
	}
}
