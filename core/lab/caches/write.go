package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/chart"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
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
	files := map[string][]byte{"caches.json": raw, "caches.md": []byte(markdown(r))}
	for _, s := range scenarios {
		drawn, err := draw(s, summarize([]Scenario{s}, r.Trials)).SVG()
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
func draw(s Scenario, rows []Row) chart.Chart {
	c := chart.Chart{Title: s.Chart, Apart: true}
	for _, r := range rows {
		switch {
		case s.Chart == "" || !r.Metric.Chart:
		case s.Split:
			c.Groups = append(c.Groups,
				r.group(r.Metric.Title+", each asks Redis", func(p Peer) bool { return !p.Copies }),
				r.group(r.Metric.Title+", copies in the process", func(p Peer) bool { return p.Copies }))
		default:
			c.Groups = append(c.Groups, r.group(r.Metric.Title, func(Peer) bool { return true }))
		}
	}
	return c
}

func (r Row) group(title string, of func(Peer) bool) chart.Group {
	g := chart.Group{Title: title}
	for _, p := range peers {
		c, ok := r.Cells[p.Name]
		switch {
		case !ok || !of(p):
		case c.Counted == 0:
			g.Bars = append(g.Bars, chart.Bar{Name: p.Name, Text: "failed", Mine: p.mine(), None: true})
		default:
			g.Bars = append(g.Bars, chart.Bar{
				Name: p.Name, Text: r.Metric.Unit.Format(c.Median), Mine: p.mine(), Value: c.Median, Min: c.Min, Max: c.Max,
			})
		}
	}
	return g
}

// markdown writes the results as a table with notes.
func markdown(r Results) string {
	rows := summarize(scenarios, r.Trials)
	var columns []Peer
	for _, p := range peers {
		for _, row := range rows {
			if _, ok := row.Cells[p.Name]; ok {
				columns = append(columns, p)
				break
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s; %s; %d rounds, order of the peers by seed %d; %s.\n\n", r.Machine, r.Server, r.Rounds, r.Seed, r.Began.Format(time.DateOnly))
	b.WriteString("Median over the rounds, and its range. **Bold** is the best median of those with copies in the process, and of those without.\n\n| | ")
	for _, p := range columns {
		fmt.Fprintf(&b, "| %s ", strings.TrimSpace(p.Name+" "+r.Versions[p.Module]))
	}
	b.WriteString("|\n|---|---" + strings.Repeat("|---", len(columns)) + "|\n| | copies in the process ")
	for _, p := range columns {
		fmt.Fprintf(&b, "| %s ", map[bool]string{true: "yes", false: "no"}[p.Copies])
	}
	b.WriteString("|\n")
	before := ""
	for _, row := range rows {
		title := row.Scenario.Title
		if row.Scenario.Name == before {
			title = ""
		}
		before = row.Scenario.Name
		fmt.Fprintf(&b, "| %s | %s ", title, row.Metric.Title)
		for _, p := range columns {
			fmt.Fprintf(&b, "| %s ", row.text(p))
		}
		b.WriteString("|\n")
	}
	b.WriteString("\n")
	for _, p := range columns {
		fmt.Fprintf(&b, "- %s: %s.\n", p.Name, p.Note)
	}
	for _, n := range notes(r.Trials) {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.String()
}
