package dashboards

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/lockaround/lockaround/core/instruments"
	"github.com/lockaround/lockaround/core/internal/testkit"
)

// scrape returns what the service serves, in the format of OpenMetrics.
func (e *exported) scrape(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := e.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// served are the series of a scrape by their name, with the values of each label.
type served map[string]map[string][]string

var (
	sample = regexp.MustCompile(`^([a-z_]+)(?:\{(.*?)\})? \S+`)
	pair   = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

func parseScrape(text string) served {
	all := make(served)
	for line := range strings.Lines(text) {
		m := sample.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		of := all[m[1]]
		if of == nil {
			of = make(map[string][]string)
			all[m[1]] = of
		}
		for _, p := range pair.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(of[p[1]], p[2]) {
				of[p[1]] = append(of[p[1]], p[2])
			}
		}
	}
	return all
}

// suffixes are what the series of an instrument have after its family's name.
func suffixes(i instruments.Instrument) []string {
	if i.Kind == instruments.Histogram {
		return []string{"_bucket", "_count", "_sum"}
	}
	return []string{""}
}

// TestExporterServesTheTable scrapes a service under load: each instrument of the table has its series, with
// the attributes and values that the table names, and there are no others.
func TestExporterServesTheTable(t *testing.T) {
	e := export(t)
	e.begin(t)
	var all served
	testkit.Until(t, "all series of the table", func() bool {
		all = parseScrape(e.scrape(t))
		return !slices.ContainsFunc(instruments.All(), func(i instruments.Instrument) bool { return all[Family(i)+suffixes(i)[0]] == nil })
	})
	known := make(map[string]bool)
	for _, i := range instruments.All() {
		for _, suffix := range suffixes(i) {
			series := Family(i) + suffix
			known[series] = true
			want := make(map[string]bool)
			for _, a := range i.Attributes {
				label := Label(a.Key)
				want[label] = true
				for _, v := range all[series][label] {
					if a.Values != nil && !slices.Contains(a.Values, v) {
						t.Errorf("%s has %s=%q, which the table does not have", series, label, v)
					}
				}
			}
			for label := range all[series] {
				if !want[label] && label != "le" && !strings.HasPrefix(label, "otel_scope_") {
					t.Errorf("%s has the label %s, which the table does not have", series, label)
				}
			}
			for label := range want {
				if all[series][label] == nil {
					t.Errorf("%s lacks the label %s of the table", series, label)
				}
			}
		}
	}
	for series := range all {
		if strings.HasPrefix(series, "lock_") && !known[series] {
			t.Errorf("%s is served, and not in the table", series)
		}
	}
}

// expressions are all of panels and alerts, by what has them.
func expressions() map[string]string {
	all := make(map[string]string)
	for _, r := range Rows() {
		for _, p := range r.Panels {
			for _, q := range p.Queries {
				all[r.Title+"/"+p.Title+"/"+q.Legend] = q.Expr
			}
		}
	}
	for _, a := range Alerts() {
		all[a.Name] = a.Expr
	}
	return all
}

// chosen replaces the variables of the dashboard by all that there is, as Grafana does.
func chosen(expr, window string) string {
	return strings.NewReplacer("$__rate_interval", window, "$job", ".*", "$policy", ".*").Replace(expr)
}

// TestExpressionsNameWhatTheTableHas parses what panels and alerts ask for: series that there are, labels that
// these have, and values that those can have.
func TestExpressionsNameWhatTheTableHas(t *testing.T) {
	of := make(map[string]instruments.Instrument)
	for _, i := range instruments.All() {
		for _, suffix := range suffixes(i) {
			of[Family(i)+suffix] = i
		}
	}
	for where, expr := range expressions() {
		for _, fault := range faults(chosen(expr, "5m"), of) {
			t.Errorf("%s: %s", where, fault)
		}
	}
}

// TestFaultyExpressionsAreFound shows that the test before can fail.
func TestFaultyExpressionsAreFound(t *testing.T) {
	of := map[string]instruments.Instrument{"lock_lost_total": instruments.Lost, "lock_wait_duration_seconds_count": instruments.WaitDuration}
	for expr, want := range map[string]string{
		"rate(lock_lost[5m])":                                               "no series lock_lost",
		`rate(lock_lost_total{lock_outcome="lost"}[5m])`:                    "lock_lost_total has no label lock_outcome",
		`lock_wait_duration_seconds_count{lock_outcome="gone"}`:             `lock_outcome is never gone`,
		`lock_wait_duration_seconds_count{lock_outcome=~"busy|gone"}`:       `lock_outcome is never gone`,
		"sum by (lock_outcome) (lock_lost_total)":                           "goes by lock_outcome",
		"sum(lock_lost_total":                                               "parse",
		"lock_wait_duration_seconds_count unless on (node) lock_lost_total": "goes by node",
	} {
		if got := strings.Join(faults(expr, of), "; "); !strings.Contains(got, want) {
			t.Errorf("%s: found %q, want %s", expr, got, want)
		}
	}
}

// faults are what an expression names that there is not.
func faults(expr string, of map[string]instruments.Instrument) (found []string) {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{fmt.Sprintf("parse %s: %v", expr, err)}
	}
	may := map[string]bool{scraped: true, "le": true, "instance": true} // what Prometheus adds
	var grouped []string
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			i, ok := of[n.Name]
			if !ok {
				found = append(found, "there is no series "+n.Name)
				return nil
			}
			for _, a := range i.Attributes {
				may[Label(a.Key)] = true
			}
			for _, m := range n.LabelMatchers {
				found = append(found, unmatched(n.Name, m, i)...)
			}
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped = append(grouped, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, label := range grouped {
		if !may[label] {
			found = append(found, fmt.Sprintf("%s goes by %s, which its series do not have", expr, label))
		}
	}
	return found
}

// unmatched is what a matcher asks for in vain.
func unmatched(series string, m *labels.Matcher, i instruments.Instrument) (found []string) {
	if m.Name == "__name__" || m.Name == scraped {
		return nil
	}
	at := slices.IndexFunc(i.Attributes, func(a instruments.Attribute) bool { return Label(a.Key) == m.Name })
	if at < 0 {
		return []string{series + " has no label " + m.Name}
	}
	for v := range strings.SplitSeq(m.Value, "|") {
		if values := i.Attributes[at].Values; values != nil && !slices.Contains(values, v) {
			found = append(found, m.Name+" is never "+v)
		}
	}
	return found
}
