package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/lockaround/lockaround/core/internal/servers"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/testservers"
)

// prometheusServer is one that scrapes a service and evaluates the alerts.
type prometheusServer struct {
	t    *testing.T
	addr string
	http http.Client
}

const config = `
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]
`

func startPrometheus(t *testing.T, e *exported) *prometheusServer {
	t.Helper()
	testservers.Need(t, "prometheus")
	alerts, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, alerts, strings.TrimPrefix(e.server.URL, "http://")), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheusServer{t: t, addr: free.Addr().String(), http: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	_ = free.Close()
	d := &servers.Server{
		Cmd: exec.CommandContext(context.Background(), "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
			"--web.listen-address="+p.addr, "--enable-feature=exemplar-storage"),
		Log: filepath.Join(dir, "log"), Addrs: []string{p.addr},
		Ready: func() error { return p.get("/-/ready", nil, nil) },
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// get asks Prometheus and decodes the data of its answer; into may be nil.
func (p *prometheusServer) get(path string, values url.Values, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := p.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(&struct{ Data any }{into})
}

// numbers returns how many values an expression has that are numbers.
func (p *prometheusServer) numbers(expr string) (n int) {
	p.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		p.t.Fatalf("%s: %v", expr, err)
	}
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			n++
		}
	}
	return n
}

// TestEveryPanelAndAlertHasDataUnderLoad asks a Prometheus that scrapes a service for each line of each panel,
// and for what each alert compares with its limit.
func TestEveryPanelAndAlertHasDataUnderLoad(t *testing.T) {
	e := export(t)
	p := startPrometheus(t, e)
	e.begin(t)
	for _, r := range Rows() {
		for _, panel := range r.Panels {
			for _, q := range panel.Queries {
				expr := chosen(q.Expr, "30s")
				testkit.Until(t, fmt.Sprintf("data in the panel %s of the row %s: %s", panel.Title, r.Title, expr), func() bool { return p.numbers(expr) > 0 })
			}
		}
	}
	for _, a := range Alerts() {
		compared := limited(t, a.Expr)
		if len(compared) == 0 {
			t.Errorf("%s compares nothing with a limit", a.Name)
		}
		for _, expr := range compared {
			testkit.Until(t, a.Name+" to have data: "+expr, func() bool { return p.numbers(expr) > 0 })
		}
	}
	p.wantRules()
	testkit.Until(t, "an exemplar of waits", func() bool {
		var found []json.RawMessage
		now := time.Now()
		about := url.Values{
			"query": {"lock_wait_duration_seconds_bucket"},
			"start": {strconv.FormatInt(now.Add(-time.Hour).Unix(), 10)}, "end": {strconv.FormatInt(now.Add(time.Hour).Unix(), 10)},
		}
		if err := p.get("/api/v1/query_exemplars", about, &found); err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	})
}

// limited are the expressions that an alert compares with a number.
func limited(t *testing.T, expr string) (all []string) {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if b, ok := n.(*parser.BinaryExpr); ok && b.Op.IsComparisonOperator() {
			if _, number := b.RHS.(*parser.NumberLiteral); number {
				all = append(all, b.LHS.String())
			}
		}
		return nil
	})
	return all
}

// wantRules waits until Prometheus has evaluated each alert, and wants no errors of that.
func (p *prometheusServer) wantRules() {
	p.t.Helper()
	testkit.Until(p.t, "the evaluation of all alerts", func() bool {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := p.get("/api/v1/rules", nil, &data); err != nil {
			p.t.Fatal(err)
		}
		well := 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.LastError != "" {
					p.t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					well++
				}
			}
		}
		return well == len(Alerts())
	})
}
