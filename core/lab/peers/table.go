package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// markdown writes the results as a table with notes: in full, or without details.
func markdown(of []Scenario, r Results, full bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; %s; %d rounds of %v after %v to warm up, order of the peers by seed %d; %s.\n\n",
		r.Machine, servers(r), r.Rounds, r.Pace.Watch, r.Pace.Warm, r.Seed, r.Began.Format(time.DateOnly))
	b.WriteString("Median over the rounds, its range, and how many times as good as the best peer of the same round\n" +
		"(without lockaround): above 1 is better, whichever way a figure counts. **Bold** is the best median.\n\n")

	rows := summarize(of, r.Trials)
	for len(rows) > 0 {
		part := rows[0].Scenario.Part
		n := slices.IndexFunc(rows, func(r Row) bool { return r.Scenario.Part != part })
		if n < 0 {
			n = len(rows)
		}
		if part != "" {
			fmt.Fprintf(&b, "\n### %s\n\n", part)
		}
		writeRows(&b, rows[:n], r, full)
		rows = rows[n:]
	}
	writeNotes(&b, of, r)
	return b.String()
}

// writeRows writes the rows of a part: what others are better at, and the table.
func writeRows(b *strings.Builder, rows []Row, r Results, full bool) {
	columns := takingPart(rows)
	if !full {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Metric.Detail })
	}
	b.WriteString(whereBehind(rows))
	if !full {
		rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Scenario.Detail })
	}
	b.WriteString("| | ")
	for _, peer := range columns {
		fmt.Fprintf(b, "| %s ", strings.TrimSpace(peer+" "+r.Versions[peer]))
	}
	b.WriteString("|\n|---|---")
	b.WriteString(strings.Repeat("|---", len(columns)))
	b.WriteString("|\n")
	before := ""
	for _, row := range rows {
		title := row.Scenario.Title
		if row.Scenario.Name == before {
			title = ""
		}
		before = row.Scenario.Name
		fmt.Fprintf(b, "| %s | %s ", title, row.Metric.Title)
		for _, peer := range columns {
			fmt.Fprintf(b, "| %s ", row.text(peer))
		}
		b.WriteString("|\n")
		if row.Metric.Also {
			row.alsoOnGoRedis(b, columns)
		}
	}
}

// whereBehind says first what others are better at, in one part for each sweep.
func whereBehind(rows []Row) string {
	type part struct {
		title, at   string
		least, most float64
	}
	var all []*part
	by := map[string]*part{}
	behind, compared := 0, 0
	for _, r := range rows {
		ratio := r.Cells[r.ours()].Ratio
		if ratio > 0 {
			compared++
		}
		if ratio <= 0 || ratio >= 1 {
			continue
		}
		behind++
		s, key, title := r.Scenario, r.Scenario.Name, r.Scenario.Title
		if s.Sweep != "" {
			key, title = s.Chart, s.Sweep
		}
		key += " " + r.Metric.Name
		p := by[key]
		if p == nil {
			p = &part{title: title + ", " + r.Metric.Title, least: ratio, most: ratio}
			by[key], all = p, append(all, p)
		}
		p.least, p.most = min(p.least, ratio), max(p.most, ratio)
		if s.Sweep != "" {
			p.at += fmt.Sprintf(", %d", s.Callers)
		}
	}
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "A peer is ahead of lockaround in %d of %d rows:\n\n", behind, compared)
	for _, p := range all {
		text := measure.Digits(p.least)
		if most := measure.Digits(p.most); most != text {
			text += " to " + most
		}
		fmt.Fprintf(&b, "- %s", p.title)
		if p.at != "" {
			fmt.Fprintf(&b, ", with %s callers", strings.TrimPrefix(p.at, ", "))
		}
		fmt.Fprintf(&b, ": %s×\n", text)
	}
	return b.String() + "\n"
}

// alsoOnGoRedis is a row with the ratios to the peers on go-redis.
func (r Row) alsoOnGoRedis(b *strings.Builder, columns []string) {
	if !slices.ContainsFunc(columns, func(peer string) bool { return r.Cells[peer].OnGoRedis > 0 }) {
		return
	}
	b.WriteString("| | to the fastest on go-redis ")
	for _, peer := range columns {
		text := "–"
		if ratio := r.Cells[peer].OnGoRedis; ratio > 0 {
			text = measure.Digits(ratio) + "×"
		}
		fmt.Fprintf(b, "| %s ", text)
	}
	b.WriteString("|\n")
}

func writeNotes(b *strings.Builder, of []Scenario, r Results) {
	var lines []string
	for _, n := range notes(r.Trials) {
		in := fmt.Sprintf("%d of %d rounds", len(n.Rounds), r.Rounds)
		if strings.HasPrefix(n.Text, "up to ") {
			in = "in a round"
		}
		lines = append(lines, fmt.Sprintf("- `%s`, %s, %s: %s\n", n.Scenario, n.Peer, in, n.Text))
	}
	for _, s := range of {
		if len(s.Out) > 0 && len(ofScenario(r.Trials, s.Name)) > 0 {
			lines = append(lines, fmt.Sprintf("- `%s`: %s take no part: they %s\n", s.Name, strings.Join(s.Out, " and "), s.Why))
		}
		if !slices.ContainsFunc(s.Metrics, func(m Metric) bool { return m.Unit == measure.Percent }) {
			continue
		}
		for _, t := range ofScenario(r.Trials, s.Name) {
			if t.Round == r.Rounds && t.Error == "" {
				lines = append(lines, fmt.Sprintf("- `%s`, %s, shares of the processes in the last round: %s\n", s.Name, t.Peer, shares(t.Shares)))
			}
		}
	}
	if len(lines) > 0 {
		b.WriteString("\n" + strings.Join(lines, ""))
	}
}

// text is a peer's cell as it is shown.
func (r Row) text(peer string) string {
	c, ok := r.Cells[peer]
	switch {
	case !ok:
		return "–"
	case c.Counted == 0:
		return c.missing()
	}
	text := r.Metric.Unit.Format(c.Median)
	if r.best(peer) {
		text = "**" + text + "**"
	}
	if c.Counted > 1 {
		text += fmt.Sprintf(" (%s–%s)", measure.Digits(c.Min), measure.Digits(c.Max))
	}
	if c.Ratio > 0 {
		text += fmt.Sprintf(" · %s×", measure.Digits(c.Ratio))
	}
	if c.Failed > 0 {
		text += fmt.Sprintf("; %d failed", c.Failed)
	}
	return text
}

// missing is what is said of a cell without a figure.
func (c Cell) missing() string {
	if c.Failed == 0 {
		return "not counted"
	}
	return "failed"
}

// best reports whether nobody's median is better.
func (r Row) best(peer string) bool {
	mine := r.Cells[peer]
	if r.Metric.Plain {
		return false
	}
	for _, c := range r.Cells {
		if c.Counted > 0 && c.Median != mine.Median && r.Metric.Less == (c.Median < mine.Median) {
			return false
		}
	}
	return mine.Counted > 0
}

// takingPart are the peers that have a cell, in the order of peers.
func takingPart(rows []Row) (columns []string) {
	for _, p := range peers {
		if slices.ContainsFunc(rows, func(r Row) bool { _, ok := r.Cells[p.Name]; return ok }) {
			columns = append(columns, p.Name)
		}
	}
	return columns
}

func servers(r Results) string {
	var all []string
	for _, p := range peers {
		if v := r.Versions[string(p.Store)+" server"]; v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return strings.Join(all, " and ")
}
