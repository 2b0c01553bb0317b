package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/chart"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/figure"
)

// write writes the results into the folder.
func write(folder string, r Results) error {
	files, err := render(r)
	if err != nil {
		return err
	}
	return contest.Write(folder, files)
}

// render returns the contents of the files, by name.
func render(r Results) (map[string][]byte, error) {
	raw, err := contest.JSON(r)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"queues.json": raw, "queues.md": []byte(markdown(r))}
	for _, s := range scenarios {
		drawn, err := draw(s, r.Trials).SVG()
		if err != nil {
			return nil, err
		}
		if drawn != "" {
			files[s.Name+".svg"] = []byte(drawn)
		}
	}
	return files, nil
}

// cell is one metric of one peer over all rounds, by round. Rounds that failed have none.
type cell struct {
	values map[int]float64
	failed int
}

func cellOf(s Scenario, m Metric, p Peer, trials []Trial) cell {
	c := cell{values: make(map[int]float64)}
	for _, t := range trials {
		switch {
		case t.Scenario != s.Name || t.Peer != p.Name:
		case t.Error == "":
			c.values[t.Round] = t.Measures[m.Name]
		default:
			c.failed++
		}
	}
	return c
}

func (c cell) all() (all []float64) {
	for _, v := range c.values {
		all = append(all, v)
	}
	return all
}

func (c cell) text(m Metric) string {
	switch all := c.all(); {
	case len(all) == 0 && c.failed == 0:
		return "–"
	case len(all) == 0:
		return "failed"
	default:
		text := m.Unit.Format(figure.Median(all))
		if least, most := slices.Min(all), slices.Max(all); least != most {
			text += fmt.Sprintf(" (%s–%s)", figure.Digits(least), figure.Digits(most))
		}
		if c.failed > 0 {
			text += fmt.Sprintf("; %d failed", c.failed)
		}
		return text
	}
}

// ratio is ours to theirs in the rounds that both have, which what else a machine does hits alike.
func ratio(mine, other cell) string {
	var all []float64
	for round, v := range mine.values {
		if o := other.values[round]; o > 0 {
			all = append(all, v/o)
		}
	}
	if len(all) == 0 {
		return "–"
	}
	text := figure.Digits(figure.Median(all))
	if least, most := slices.Min(all), slices.Max(all); least != most {
		text += fmt.Sprintf(" (%s–%s)", figure.Digits(least), figure.Digits(most))
	}
	return text
}

// draw is the chart of a scenario.
func draw(s Scenario, trials []Trial) chart.Chart {
	c := chart.Chart{Title: s.Chart, Apart: true}
	if s.Chart == "" {
		return c
	}
	for _, m := range s.Metrics {
		if !m.Chart {
			continue
		}
		g := chart.Group{Title: m.Title}
		for _, p := range peers {
			of := cellOf(s, m, p, trials)
			switch all := of.all(); {
			case len(all) > 0:
				g.Bars = append(g.Bars, chart.Bar{
					Name: p.Name, Text: m.Unit.Format(figure.Median(all)), Mine: p.mine(), Value: figure.Median(all), Min: slices.Min(all), Max: slices.Max(all),
				})
			case of.failed > 0:
				g.Bars = append(g.Bars, chart.Bar{Name: p.Name, Text: "failed", Mine: p.mine(), None: true})
			}
		}
		if len(g.Bars) > 0 {
			c.Groups = append(c.Groups, g)
		}
	}
	return c
}

// row is a line of the table.
type row struct {
	scenario Scenario
	metric   Metric
	cells    []cell // by peer
}

// cell is that of the peer of a name.
func (r row) cell(peers []Peer, name string) cell {
	for i, p := range peers {
		if p.Name == name {
			return r.cells[i]
		}
	}
	return cell{}
}

// behind reports whether another peer's median is better than ours.
func (r row) behind(mine, other []float64) bool {
	if len(mine) == 0 || len(other) == 0 {
		return false
	}
	a, b := figure.Median(mine), figure.Median(other)
	return a != b && r.metric.More == (b > a)
}

// markdown writes what the peers are ahead in, and the results as a table with notes.
func markdown(r Results) string {
	var rows []row
	var behind []string
	peers := slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool {
		return !slices.ContainsFunc(r.Trials, func(t Trial) bool { return t.Peer == p.Name })
	})
	for _, s := range scenarios {
		for _, m := range s.Metrics {
			at := row{scenario: s, metric: m}
			known := false
			for i, p := range peers {
				at.cells = append(at.cells, cellOf(s, m, p, r.Trials))
				known = known || len(at.cells[i].values)+at.cells[i].failed > 0
			}
			for i, p := range peers {
				if at.behind(at.cell(peers, subject).all(), at.cells[i].all()) {
					behind = append(behind, fmt.Sprintf("%s is ahead in “%s” of `%s`.", p.Name, m.Title, s.Name))
				}
			}
			if known {
				rows = append(rows, at)
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s; %s; %d rounds, order of the peers by seed %d; %s.\n\n", r.Machine, r.Server, r.Rounds, r.Seed, r.Began.Format(time.DateOnly))
	for _, line := range behind {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	if len(behind) == 0 {
		fmt.Fprintln(&b, "No peer is ahead in any of these figures.")
	}
	b.WriteString("\nMedian over the rounds, and its range. The ratio is lockaround's figure to asynq's of the same round.\n\n| | | ")
	for _, p := range peers {
		fmt.Fprintf(&b, "| %s ", strings.TrimSpace(p.Name+" "+r.Versions[p.Module]))
	}
	b.WriteString("| ratio |\n|---|---|---" + strings.Repeat("|---", len(peers)) + "|---|\n")
	before := ""
	for _, at := range rows {
		name, title := "`"+at.scenario.Name+"`", at.scenario.Title
		if at.scenario.Name == before {
			name, title = "", ""
		}
		before = at.scenario.Name
		fmt.Fprintf(&b, "| %s | %s | %s ", name, title, at.metric.Title)
		for _, c := range at.cells {
			fmt.Fprintf(&b, "| %s ", c.text(at.metric))
		}
		fmt.Fprintf(&b, "| %s |\n", ratio(at.cell(peers, subject), at.cell(peers, "asynq")))
	}
	b.WriteString("\n")
	for _, p := range peers {
		fmt.Fprintf(&b, "- %s: %s.\n", p.Name, p.Note)
	}
	for _, t := range r.Trials {
		if t.Error != "" {
			fmt.Fprintf(&b, "- `%s`, %s, round %d: %s\n", t.Scenario, t.Peer, t.Round, t.Error)
		}
	}
	return b.String()
}
