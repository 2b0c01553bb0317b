package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oldWord is a private name of something that the contract has a name for.
type oldWord struct {
	forms []string // in lower case
	now   string
	in    []string // folders in which it means that; everywhere if there are none
	code  bool     // it is plain English in a comment
}

var oldWords = []oldWord{
	{forms: []string{"enrol", "enrols", "enrolled", "enrolling", "enrolment", "enrolments"}, now: "queue, place or request"},
	{forms: []string{"tenure", "tenures"}, now: "lease"},
	{forms: []string{"hearsay"}, now: "staleAfter"},
	{forms: []string{"keeper", "keepers"}, now: "renewer"},
	{forms: []string{"ender", "enders"}, now: "releaser"},
	{forms: []string{"knock", "knocks", "knocked", "bell", "bells"}, now: "contended", in: []string{"core"}},
	{forms: []string{"parcel", "parcels"}, now: "packet", in: []string{"core"}},
	{forms: []string{"fate", "fates"}, now: "endReason or outcome", in: []string{"core"}},
	{forms: []string{"company"}, now: "sharing", in: []string{"core"}},
	{forms: []string{"moment", "moments"}, now: "instant", in: []string{"core/internal/queue", "core/memlock"}, code: true},
	{forms: []string{"sink", "sinks"}, now: "events", in: []string{"core/internal/queue"}, code: true},
	{forms: []string{"standing"}, now: "lineState", in: []string{"core/internal/queue"}},
	{forms: []string{"news", "rare"}, now: "heardAt, extras", in: []string{"core/internal/queue"}, code: true},
	{forms: []string{"straight"}, now: "alone, sendAlone", in: []string{"core/redislock", "core/redlock"}},
	{forms: []string{"spell", "spells"}, now: "sharedDeadline", in: []string{"core/redislock", "core/redlock"}, code: true},
	{forms: []string{"board", "boards", "look", "looks"}, now: "keyState, poll", in: []string{"core/sqllock", "core/lab/databases/sqllock"}, code: true},
	{forms: []string{"turning", "turned"}, now: "the writing lock", in: []string{"core/etcdlock"}, code: true},
}

// part is a word of a text, or of a name like sendAlone or M_STALE.
var part = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// others are names that are not ours.
var others = strings.NewReplacer("ZooKeeper", "", "driver.Sink", "", "Sink:", "")

// byForm are the old words by each of their forms.
var byForm = func() map[string][]oldWord {
	all := make(map[string][]oldWord)
	for _, old := range oldWords {
		for _, form := range old.forms {
			all[form] = append(all[form], old)
		}
	}
	return all
}()

// mayHave is quick, and spares most lines the rest.
func mayHave(line string) bool {
	line = strings.ToLower(line)
	for form := range byForm {
		if strings.Contains(line, form) {
			return true
		}
	}
	return false
}

// outdated returns the old words in a file of the tree, each with its line.
func outdated(name, text string) (found []string) {
	for i, line := range strings.Split(text, "\n") {
		if !mayHave(line) {
			continue
		}
		line = others.Replace(line)
		code, _, _ := strings.Cut(line, "//")
		for _, at := range part.FindAllStringIndex(line, -1) {
			word := line[at[0]:at[1]]
			for _, old := range byForm[strings.ToLower(word)] {
				inside := func(folder string) bool { return strings.HasPrefix(name, folder+"/") }
				if (old.in == nil || slices.ContainsFunc(old.in, inside)) && (!old.code || at[0] < len(code)) {
					found = append(found, fmt.Sprintf("%s:%d: %q is an old word; say %s", name, i+1, word, old.now))
				}
			}
		}
	}
	return found
}

// TestOldWordsStayOut keeps the tree to one vocabulary: see CONTRIBUTING.md.
func TestOldWordsStayOut(t *testing.T) {
	const top = "../../.."
	list := exec.Command("git", "ls-files", "-z", "*.go", "*.lua", "*.pml", "*.proto", "*.md", "*.mod", "*.tmpl", "*.yml", "Makefile", ".ci")
	list.Dir = top
	names, err := list.Output()
	if err != nil {
		t.Skipf("needs git and the repository: %v", err)
	}
	read := 0
	for name := range strings.SplitSeq(string(names), "\x00") {
		if name == "" || name == "core/lab/suite/words_test.go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		read++
		for _, f := range outdated(name, string(text)) {
			t.Error(f)
		}
	}
	if read < 500 {
		t.Errorf("read %d files of the tree", read)
	}
}

func TestOldWordsAreFoundInNamesAndOnlyWhereTheyAreOld(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		found      int
	}{
		{"core/a.go", "tokenAtEnrolment = M_HEARSAY // keepers", 3},
		{"core/a.go", "var Tenure int\n// enders", 2},
		{"core/a.go", "zookeeper, ZooKeeper, Sender, bellows, fated", 0},
		{"core/redlock/lane_test.go", "func TestCallsGoStraight() {} // one way to spell it", 1},
		{"core/redlock/a.go", "var spell int", 1},
		{"core/internal/queue/a.go", "func moment() {} // at the moment", 1},
		{"core/internal/queue/a.go", "var _ driver.Sink = sink{}", 1},
		{"decorator/a.go", "func moment(parcel Parcel)", 0},
	} {
		if found := outdated(tt.name, tt.text); len(found) != tt.found {
			t.Errorf("found in %s, %q: %v; want %d", tt.name, tt.text, found, tt.found)
		}
	}
}
