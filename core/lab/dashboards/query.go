package dashboards

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockaround/lockaround/core/instruments"
)

// Family is the name of an instrument's metric in Prometheus, as OpenTelemetry's exporter and an OTLP
// receiver make it by default. A histogram has series with _bucket, _count and _sum after it.
func Family(i instruments.Instrument) string {
	name := strings.ReplaceAll(i.Name, ".", "_")
	if i.Unit == "s" {
		name += "_seconds"
	}
	if i.Kind == instruments.Counter {
		name += "_total"
	}
	return name
}

// Label is the name of an attribute in Prometheus.
func Label(k attribute.Key) string { return strings.ReplaceAll(string(k), ".", "_") }

// The labels that queries go by. Prometheus gives each series the job that it is scraped by.
var (
	scraped   = "job"
	policy    = Label(instruments.NameKey)
	store     = Label(instruments.DriverKey)
	outcome   = Label(instruments.OutcomeKey)
	condition = Label(instruments.ConditionKey)
	address   = Label(instruments.AddressKey)
	port      = Label(instruments.PortKey)
)

// query writes expressions that select the same series: those of a dashboard's variables, or all.
type query struct {
	match  string // matchers of series that have a policy
	common string // matchers of series that have none
	window string // of rates
}

// series selects those of a metric, with more matchers.
func (q query) series(i instruments.Instrument, suffix string, match ...string) string {
	all := q.match
	if i.Attributes[0].Key != instruments.NameKey {
		all = q.common
	}
	if all != "" {
		match = append([]string{all}, match...)
	}
	if len(match) == 0 {
		return Family(i) + suffix
	}
	return Family(i) + suffix + "{" + strings.Join(match, ",") + "}"
}

// rate adds up by labels what is counted in a second.
func (q query) rate(by string, i instruments.Instrument, match ...string) string {
	suffix := ""
	if i.Kind == instruments.Histogram {
		suffix = "_count"
	}
	return fmt.Sprintf("sum by (%s) (rate(%s[%s]))", by, q.series(i, suffix, match...), q.window)
}

// increase adds up by labels what is counted in the window.
func (q query) increase(by string, i instruments.Instrument, match ...string) string {
	return fmt.Sprintf("sum by (%s) (increase(%s[%s]))", by, q.series(i, "", match...), q.window)
}

// share is the part of what is counted that the matchers select, from 0 to 1. It has no value while nothing
// is counted.
func (q query) share(by string, i instruments.Instrument, match ...string) string {
	return q.rate(by, i, match...) + " / " + q.rate(by, i)
}

// quantile is that of a histogram, in its unit.
func (q query) quantile(of float64, by string, i instruments.Instrument, match ...string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum by (le, %s) (rate(%s[%s])))", of, by, q.series(i, "_bucket", match...), q.window)
}

// sum adds up the values of all processes.
func (q query) sum(by string, i instruments.Instrument, match ...string) string {
	return fmt.Sprintf("sum by (%s) (%s)", by, q.series(i, "", match...))
}

// max is the largest value of a process: for what every process reports of the whole.
func (q query) max(by string, i instruments.Instrument, match ...string) string {
	return fmt.Sprintf("max by (%s) (%s)", by, q.series(i, "", match...))
}

// is matches a label's values, any of them.
func is(label string, values ...string) string {
	if len(values) == 1 {
		return fmt.Sprintf("%s=%q", label, values[0])
	}
	return fmt.Sprintf("%s=~%q", label, strings.Join(values, "|"))
}

// isNot matches a label's other values.
func isNot(label, value string) string { return fmt.Sprintf("%s!=%q", label, value) }
