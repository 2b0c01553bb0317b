package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// Row is one metric of a scenario over all rounds, for all peers.
type Row struct {
	Scenario Scenario
	Metric   Metric
	Cells    map[string]Cell // by peer; those that take part
}

// ours is the peer of the row whose ratio to the others is asked for; "" if there is none.
func (r Row) ours() string {
	for _, p := range peers {
		if _, ok := r.Cells[p.Name]; ok && p.Ours {
			return p.Name
		}
	}
	return ""
}

// Cell is one metric of one peer over all rounds. If no trial counts, only Failed is set, which is
// 0 for what is not counted there at all.
type Cell struct {
	Median, Min, Max float64
	Counted, Failed  int     // trials
	Ratio            float64 // median over rounds; 0 if it has no match in any
	OnGoRedis        float64 // the same to the peers on go-redis alone
}

// summarize has a row for each metric that there are trials of, in the order given.
func summarize(of []Scenario, trials []Trial) (rows []Row) {
	for _, s := range of {
		for _, m := range s.Metrics {
			row := Row{Scenario: s, Metric: m, Cells: map[string]Cell{}}
			for _, t := range trials {
				if _, done := row.Cells[t.Peer]; t.Scenario == s.Name && !done {
					row.Cells[t.Peer] = summary(m, t.Peer, ofScenario(trials, s.Name))
				}
			}
			if len(row.Cells) > 0 {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func ofScenario(trials []Trial, name string) (of []Trial) {
	for _, t := range trials {
		if t.Scenario == name {
			of = append(of, t)
		}
	}
	return of
}

// summary is a peer's cell, of the trials of one scenario.
func summary(m Metric, peer string, trials []Trial) (c Cell) {
	var values, ratios, onGoRedis []float64
	for _, t := range trials {
		if t.Peer != peer {
			continue
		}
		v, ok := t.figure(m)
		if !ok {
			if t.Error != "" {
				c.Failed++
			}
			continue
		}
		values = append(values, v)
		if m.Plain {
			continue
		}
		if r := ratio(m, v, t.Round, trials, isOther); r > 0 {
			ratios = append(ratios, r)
		}
		if r := ratio(m, v, t.Round, trials, isOnGoRedis); r > 0 && m.Also {
			onGoRedis = append(onGoRedis, r)
		}
	}
	if c.Counted = len(values); c.Counted > 0 {
		c.Median, c.Min, c.Max = measure.Median(values), slices.Min(values), slices.Max(values)
	}
	c.Ratio, c.OnGoRedis = measure.Median(ratios), measure.Median(onGoRedis)
	return c
}

// figure is the trial's value of a metric, if it counts.
func (t Trial) figure(m Metric) (float64, bool) {
	v, ok := t.Measures[m.Name]
	return v, ok && t.Error == ""
}

// isOther and isOnGoRedis are whom a ratio compares with.
func isOther(peer string) bool { return !ours(peer) }

func isOnGoRedis(peer string) bool {
	return isOther(peer) && slices.ContainsFunc(peers, func(p Peer) bool { return p.Name == peer && p.GoRedis })
}

// ratio compares a value with the best of some peers in a round, and is above 1 if it is
// better than that. It is 0 if there is none to compare with, or no quotient.
func ratio(m Metric, v float64, round int, trials []Trial, among func(peer string) bool) float64 {
	var best float64
	found := false
	for _, t := range trials {
		other, ok := t.figure(m)
		if !ok || t.Round != round || !among(t.Peer) {
			continue
		}
		if !found || other != best && m.Less == (other < best) {
			best, found = other, true
		}
	}
	if best == 0 || v == 0 {
		return 0
	}
	if m.Less {
		return best / v
	}
	return v / best
}

// Note is an error, or something else that a reader must know of a peer's trials.
type Note struct {
	Scenario, Peer, Text string
	Rounds               []int
}

// notes are what there is to say, those of a scenario and peer with the same words once.
func notes(trials []Trial) (all []Note) {
	add := func(t Trial, text string) {
		i := slices.IndexFunc(all, func(n Note) bool { return n.Scenario == t.Scenario && n.Peer == t.Peer && n.Text == text })
		if i < 0 {
			i = len(all)
			all = append(all, Note{Scenario: t.Scenario, Peer: t.Peer, Text: text})
		}
		all[i].Rounds = append(all[i].Rounds, t.Round)
	}
	most := map[[2]string]Trial{} // by scenario and peer: the trial in which most calls gave up
	for _, t := range trials {
		of := [2]string{t.Scenario, t.Peer}
		switch {
		case t.Error != "":
			add(t, t.Error)
		case t.GaveUp() > most[of].GaveUp():
			most[of] = t
		}
	}
	for _, t := range trials {
		if worst := most[[2]string{t.Scenario, t.Peer}]; worst.GaveUp() > 0 && worst.Round == t.Round {
			add(t, fmt.Sprintf("up to %d calls to lock gave up and were made again: %s", t.GaveUp(), t.refusal()))
		}
	}
	slices.SortStableFunc(all, func(a, b Note) int { return cmp.Compare(a.Scenario, b.Scenario) })
	return all
}
