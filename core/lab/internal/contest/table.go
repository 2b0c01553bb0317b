package contest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/chart"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// Cell is one metric of one peer over all rounds.
type Cell struct {
	Values map[int]float64 // by round; those that failed have none
	Failed int             // rounds
}

// Median is 0 if no round counts.
func (c Cell) Median() float64 { return measure.Median(slices.Collect(maps.Values(c.Values))) }

func (c Cell) span() (least, most float64) {
	all := slices.Sorted(maps.Values(c.Values))
	return all[0], all[len(all)-1]
}

// Text is the cell as a table shows it.
func (c Cell) Text(unit measure.Unit) string {
	switch {
	case len(c.Values) == 0 && c.Failed == 0:
		return "–"
	case len(c.Values) == 0:
		return "failed"
	}
	text := c.Range(unit.Format)
	if c.Failed > 0 {
		text += fmt.Sprintf("; %d failed", c.Failed)
	}
	return text
}

// Range is the median, as format has it, and between which values it is.
func (c Cell) Range(format func(float64) string) string {
	text := format(c.Median())
	if least, most := c.span(); least != most {
		text += fmt.Sprintf(" (%s–%s)", measure.Digits(least), measure.Digits(most))
	}
	return text
}

// Row is one metric of a scenario over all rounds, for all peers.
type Row[P Pace, Open any] struct {
	Scenario Scenario[P, Open]
	Metric   Metric
	Cells    map[string]Cell // by peer; those that take part
}

// Rows has a row for each metric that there are trials of, in the order given.
func Rows[P Pace, Open any](of []Scenario[P, Open], trials []Trial) (rows []Row[P, Open]) {
	for _, s := range of {
		for _, m := range s.Metrics {
			row := Row[P, Open]{s, m, map[string]Cell{}}
			for _, t := range trials {
				if t.Scenario != s.Name {
					continue
				}
				c := row.Cells[t.Peer]
				if v, ok := t.Measures[m.Name]; ok && t.Error == "" {
					if c.Values == nil {
						c.Values = map[int]float64{}
					}
					c.Values[t.Round] = v
				} else {
					c.Failed++
				}
				row.Cells[t.Peer] = c
			}
			if len(row.Cells) > 0 {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// Ahead reports whether a peer has a better median than another one.
func (r Row[P, Open]) Ahead(peer, other string) bool {
	a, b := r.Cells[peer], r.Cells[other]
	return len(a.Values) > 0 && len(b.Values) > 0 && a.Median() != b.Median() && r.Metric.More == (a.Median() > b.Median())
}

// TakingPart are the peers that there are trials of.
func TakingPart[Open any](peers []Peer[Open], trials []Trial) []Peer[Open] {
	return slices.DeleteFunc(slices.Clone(peers), func(p Peer[Open]) bool {
		return !slices.ContainsFunc(trials, func(t Trial) bool { return t.Peer == p.Name })
	})
}

// Ran says in a line what the trials ran on.
func (r Results[P]) Ran() string {
	return fmt.Sprintf("%s; %s; %d rounds, order of the peers by seed %d; %s.\n", r.Machine, r.Server, r.Rounds, r.Seed, r.Began.Format(time.DateOnly))
}

// Heads are the heads of the columns of a table.
func Heads[P Pace, Open any](r Results[P], columns []Peer[Open]) (heads string) {
	for _, p := range columns {
		heads += fmt.Sprintf("| %s ", strings.TrimSpace(p.Name+" "+r.Versions[p.Module]))
	}
	return heads
}

// Notes are a list of what is to be known of the peers, and of the errors and failures of the trials.
func Notes[Open any](columns []Peer[Open], trials []Trial) (notes string) {
	for _, p := range columns {
		notes += fmt.Sprintf("- %s: %s.\n", p.Name, p.Note)
	}
	for _, t := range trials {
		what := t.Error
		if what == "" && t.Failed > 0 {
			what = t.Failures()
		}
		if what != "" {
			notes += fmt.Sprintf("- `%s`, %s, round %d: %s\n", t.Scenario, t.Peer, t.Round, what)
		}
	}
	return notes
}

// Render returns the contents of the files by name: all trials, the table and the charts.
func Render[P Pace, Open any](name string, r Results[P], table string, scenarios []Scenario[P, Open], peers []Peer[Open]) (map[string][]byte, error) {
	raw, err := JSON(r)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{name + ".json": raw, name + ".md": []byte(table)}
	for _, s := range scenarios {
		drawn, err := draw(s, peers, r.Trials).SVG()
		if err != nil {
			return nil, err
		}
		if drawn != "" {
			files[s.Name+".svg"] = []byte(drawn)
		}
	}
	return files, nil
}

// draw is the chart of a scenario.
func draw[P Pace, Open any](s Scenario[P, Open], peers []Peer[Open], trials []Trial) chart.Chart {
	c := chart.Chart{Title: s.Chart, Apart: true}
	for _, r := range Rows([]Scenario[P, Open]{s}, trials) {
		switch {
		case s.Chart == "" || !r.Metric.Chart:
		case s.Split:
			c.Groups = append(c.Groups,
				r.group(r.Metric.Title+", each asks Redis", peers, func(p Peer[Open]) bool { return !p.Copies }),
				r.group(r.Metric.Title+", copies in the process", peers, func(p Peer[Open]) bool { return p.Copies }))
		default:
			c.Groups = append(c.Groups, r.group(r.Metric.Title, peers, func(Peer[Open]) bool { return true }))
		}
	}
	return c
}

func (r Row[P, Open]) group(title string, peers []Peer[Open], of func(Peer[Open]) bool) chart.Group {
	g := chart.Group{Title: title}
	for _, p := range peers {
		c, ok := r.Cells[p.Name]
		switch {
		case !ok || !of(p):
		case len(c.Values) == 0:
			g.Bars = append(g.Bars, chart.Bar{Name: p.Name, Text: "failed", Mine: p.Mine(), None: true})
		default:
			least, most := c.span()
			g.Bars = append(g.Bars, chart.Bar{
				Name: p.Name, Text: r.Metric.Unit.Format(c.Median()), Mine: p.Mine(), Value: c.Median(), Min: least, Max: most,
			})
		}
	}
	return g
}
