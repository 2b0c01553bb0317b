package instruments_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockaround/lockaround/core/instruments"
)

var update = flag.Bool("update", false, "write the table of ../README.md")

const (
	begin = "<!-- the table is generated from core/instruments: go test ./core/instruments -update -->\n"
	end   = "<!-- end of the table -->\n"
)

func TestTableOfTheDocsIsCurrent(t *testing.T) {
	const path = "../README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s does not have the table's two marks", path)
	}
	want := before + begin + markdown() + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("the table of %s is not that of the code; go test ./core/instruments -update writes it", path)
	}
}

// markdown is the table for readers.
func markdown() string {
	var b strings.Builder
	b.WriteString("| instrument | kind, unit | attributes | measures |\n|---|---|---|---|\n")
	for _, i := range instruments.All() {
		var about []string
		for _, a := range i.Attributes {
			text := "`" + string(a.Key) + "`"
			if a.Values != nil {
				text += ": " + strings.Join(a.Values, ", ")
			}
			about = append(about, text)
		}
		fmt.Fprintf(&b, "| `%s` | %v, `%s` | %s | %s |\n", i.Name, i.Kind, i.Unit, strings.Join(about, "; "), i.Description)
	}
	return b.String()
}

// TestNamesAndUnitsFollowTheConventions keeps to what OpenTelemetry says of names and units.
func TestNamesAndUnitsFollowTheConventions(t *testing.T) {
	name, unit := regexp.MustCompile(`^lock(\.[a-z]+(_[a-z]+)*)+$`), regexp.MustCompile(`^(s|\{[a-z]+\})$`)
	seen := make(map[string]bool)
	for _, i := range instruments.All() {
		if !name.MatchString(i.Name) || strings.HasSuffix(i.Name, "total") || seen[i.Name] {
			t.Errorf("%s: names are in lower case, with dots, without total, and once", i.Name)
		}
		seen[i.Name] = true
		if !unit.MatchString(i.Unit) {
			t.Errorf("%s has the unit %q; want s, or what is counted, in the singular", i.Name, i.Unit)
		}
		if strings.HasSuffix(i.Name, ".duration") != (i.Kind == instruments.Histogram) || i.Kind == instruments.Histogram && i.Unit != "s" {
			t.Errorf("%s is a %v in %s; durations are histograms in s", i.Name, i.Kind, i.Unit)
		}
		if (i.Buckets != nil) != (i.Kind == instruments.Histogram) || !slices.IsSorted(i.Buckets) {
			t.Errorf("%s is a %v with the buckets %v", i.Name, i.Kind, i.Buckets)
		}
		if i.Scope == "" || !strings.HasSuffix(i.Description, ".") || len(i.Attributes) == 0 || i.Kind.String() == "unknown" {
			t.Errorf("%s lacks something: %+v", i.Name, i)
		}
	}
}

func TestMeterRefusesAnotherKind(t *testing.T) {
	m := instruments.NewMeter(noop.NewMeterProvider())
	m.Counter(instruments.Lost)
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	m.Counter(instruments.WaitDuration)
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "lock.wait.duration: it is a histogram, and no counter") {
		t.Errorf("a histogram as a counter: %v", err)
	}
	if m.Observe(instruments.Lost.Scope, nil) != nil {
		t.Error("a callback is registered though an instrument is missing")
	}
}

// TestDocsNameInstrumentsThatThereAre reads every mention of one in the comments and pages of the tree.
func TestDocsNameInstrumentsThatThereAre(t *testing.T) {
	groups, known := make(map[string]bool), make(map[string]bool)
	for _, i := range instruments.All() {
		known[i.Name] = true
		if parts := strings.Split(i.Name, "."); len(parts) > 2 {
			groups[parts[1]] = true
		}
	}
	mention := regexp.MustCompile(`\block\.([a-z]+)\.[a-z_.]*[a-z]`)
	found := 0
	for _, pattern := range []string{"../*.md", "../*.go", "../redlock/*.go", "../dashboards/*.md", "../../decorator/*.go", "../../decorator/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range mention.FindAllSubmatch(text, -1) {
				if n := string(m[0]); groups[string(m[1])] {
					if found++; !known[n] {
						t.Errorf("%s names %s, which is not in the table", f, n)
					}
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d mentions", found)
	}
}
