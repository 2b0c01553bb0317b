package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// report is what a command says. It takes the command's output, line by line.
type report struct {
	Tests    bool // it is that of go test -json
	Progress func(string, ...any)

	rest    []byte // a line that has not ended
	told    []attribute
	failed  []string // tests, as they ended: inner ones first
	skipped []string
	output  map[string][]string // lines, by test; those of no test are at ""
}

// attribute is what a test tells by its method Attr.
type attribute struct{ Test, Key, Value string }

// Write takes a part of the output. The error is nil.
func (r *report) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		r.rest = rest
		r.take(string(line))
	}
}

// end takes the last line, if nothing has ended it.
func (r *report) end() {
	if len(r.rest) > 0 {
		r.take(string(r.rest))
		r.rest = nil
	}
}

func (r *report) take(line string) {
	var e struct{ Action, Test, Key, Value, Output string }
	if !r.Tests || json.Unmarshal([]byte(line), &e) != nil {
		rest, is := strings.CutPrefix(line, "=== ATTR  ")
		if f := strings.SplitN(rest, " ", 3); is && len(f) == 3 {
			r.tell(attribute{f[0], f[1], f[2]})
			return
		}
		r.keep("", line)
		return
	}
	switch e.Action {
	case "attr":
		r.tell(attribute{e.Test, e.Key, e.Value})
	case "fail":
		if e.Test != "" {
			r.failed = append(r.failed, e.Test)
		}
	case "skip":
		r.skipped = append(r.skipped, e.Test)
	case "output", "build-output":
		r.keep(e.Test, strings.TrimRight(e.Output, "\n"))
	}
}

func (r *report) keep(test, line string) {
	if r.output == nil {
		r.output = make(map[string][]string)
	}
	r.output[test] = append(r.output[test], line)
}

func (r *report) tell(a attribute) {
	r.told = append(r.told, a)
	r.Progress("  %s: %s", a.Key, a.Value)
}

// tells reports whether the command has told of a figure.
func (r *report) tells(f int) bool {
	return slices.ContainsFunc(r.told, func(a attribute) bool { return a.Key == fmt.Sprint("figure-", f) })
}

// outcome is what the command has told of a figure. That another test has failed than those
// which told of it is no matter, as long as a test accounts for the command's failure.
func (r *report) outcome(f int, failure error) (outcome, string) {
	var values []string
	short := failure != nil && len(r.failed) == 0
	for _, a := range r.told {
		if a.Key != fmt.Sprint("figure-", f) {
			continue
		}
		values = append(values, a.Value)
		for _, name := range r.failed {
			short = short || name == a.Test
		}
	}
	text := strings.Join(values, "; ")
	switch {
	case short && text != "":
		return fellShort, r.complaint(failure) + " (" + text + ")"
	case short || text == "" && failure != nil:
		return fellShort, r.complaint(failure)
	case text == "":
		return fellShort, "the command told nothing of it" + r.excuse()
	case strings.HasPrefix(text, string(notApplying)):
		return notApplying, text
	}
	return reached, text
}

// complaint is the line that says what is wrong: of the first test that failed the first that
// it has written itself, and not what it uses; of another program the last one.
func (r *report) complaint(failure error) string {
	name := r.culprit()
	found, own := "", false
	for _, l := range r.output[name] {
		by := writtenByTest.MatchString(l)
		l = strings.TrimSpace(l)
		switch first, _, _ := strings.Cut(l, " "); {
		case first == "" || first == "#" || first == "===" || first == "---" || strings.HasPrefix(first, "FAIL") || strings.HasPrefix(l, "exit status "):
		case first == "panic:" || strings.HasPrefix(l, "fatal error: "):
			return strings.TrimPrefix(name+": "+l, ": ")
		case found == "" || !r.Tests || by && !own:
			found, own = l, by
		}
	}
	if found == "" {
		found = failure.Error()
	}
	return strings.TrimPrefix(name+": "+found, ": ")
}

// writtenByTest matches what a test logs or finds wrong.
var writtenByTest = regexp.MustCompile(`^ +\S+\.go:\d+: `)

// culprit is the first test that failed, empty if none did.
func (r *report) culprit() string {
	if len(r.failed) == 0 {
		return ""
	}
	return r.failed[0]
}

// ending is the end of what the culprit has written, or of all that is no test's.
func (r *report) ending() []string {
	const most = 30
	lines := r.output[r.culprit()]
	return lines[max(0, len(lines)-most):]
}

// excuse says that tests were skipped, and why the first of them was.
func (r *report) excuse() string {
	if len(r.skipped) == 0 {
		return ""
	}
	for _, l := range r.output[r.skipped[0]] {
		if l = strings.TrimSpace(l); strings.Contains(l, ".go:") {
			return ": " + r.skipped[0] + " was skipped: " + l
		}
	}
	return ": " + r.skipped[0] + " was skipped"
}
