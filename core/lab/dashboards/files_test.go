package dashboards

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/instruments"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the files anew")

// How the files are written anew, and where they are.
const (
	anew     = "go test ./core/lab/dashboards -update"
	readme   = "../../dashboards/README.md"
	grafana  = "../../dashboards/grafana/lockaround.json"
	rules    = "../../dashboards/prometheus/rules.yml"
	ruleTest = "../../dashboards/prometheus/rules_test.yml"
)

func TestFilesAreCurrent(t *testing.T) {
	page, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	runbook, names := Pages()
	for mark, text := range map[string]string{"runbook": runbook, "names": names} {
		begin, end := fmt.Appendf(nil, "<!-- %s: %s -->\n", mark, anew), fmt.Appendf(nil, "<!-- end of %s -->\n", mark)
		before, rest, ok := bytes.Cut(page, begin)
		_, after, ended := bytes.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("README.md does not have the marks of %s", mark)
		}
		page = bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil)
	}
	for path, want := range map[string][]byte{
		readme: page, grafana: Grafana(), rules: Rules(),
	} {
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes (%v); %s writes it", path, err, anew)
		}
	}
}

func TestPromtoolTakesTheRulesAndTheirTestsPass(t *testing.T) {
	testservers.Need(t, "promtool")
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", ruleTest}} {
		out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestEveryAlertIsSeenToFireAndToKeepQuiet looks for both in the unit tests that promtool runs.
func TestEveryAlertIsSeenToFireAndToKeepQuiet(t *testing.T) {
	text, err := os.ReadFile(ruleTest)
	if err != nil {
		t.Fatal(err)
	}
	fires, quiet := make(map[string]bool), make(map[string]bool)
	for _, check := range regexp.MustCompile(`expr: ALERTS\{alertname="(\w+)".*\n.*\n +exp_samples:(.*)`).FindAllStringSubmatch(string(text), -1) {
		if strings.TrimSpace(check[2]) == "[]" {
			quiet[check[1]] = true
		} else {
			fires[check[1]] = true
		}
	}
	for _, a := range Alerts() {
		if !fires[a.Name] || !quiet[a.Name] {
			t.Errorf("%s: tests see it fire: %t; keep quiet: %t", a.Name, fires[a.Name], quiet[a.Name])
		}
	}
}

func TestEveryInstrumentIsShown(t *testing.T) {
	dashboard := string(Grafana())
	for _, i := range instruments.All() {
		if !strings.Contains(dashboard, Family(i)) {
			t.Errorf("no panel shows %s", i.Name)
		}
	}
}

// TestGrafanaFindsWhatTheDashboardNames reads the file as Grafana does: data sources and variables by their
// names, and panels in a grid, each with an id of its own.
func TestGrafanaFindsWhatTheDashboardNames(t *testing.T) {
	type place struct{ X, Y, W, H int }
	var d struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     place
			Datasource  struct{ Type, UID string }
			Targets     []struct {
				RefID, Expr string
				Datasource  struct{ UID string }
			}
		}
	}
	if err := json.Unmarshal(Grafana(), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 38 {
		t.Errorf("uid %q, title %q, schema %d; Grafana 10 has 38", d.UID, d.Title, d.SchemaVersion)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
	}
	if got := strings.Join(variables, ", "); got != "datasource datasource, job query, policy query" {
		t.Errorf("the variables are %s", got)
	}
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	var rows []string
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: another panel has its id", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= width {
					t.Fatalf("%s lies over %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s has the data source %q and %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" || q.RefID == "" || q.Expr == "" {
				t.Errorf("%s has the query %+v", p.Title, q)
			}
		}
	}
	if got := strings.Join(rows, ", "); got != "Waits, Holds, Losses, Store, Queues, Caches, Idempotent calls, Jobs, Leaders" {
		t.Errorf("the rows are %s", got)
	}
}
