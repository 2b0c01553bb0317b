package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

// write writes the results into the folder, and into the page if there is one.
func write(folder, page string, r Results) error {
	files, err := render(r)
	if err != nil {
		return err
	}
	if err := contest.Write(folder, files); err != nil {
		return err
	}
	if page == "" {
		return nil
	}
	return insert(page, folder, markdown(scenarios, r, false), files)
}

// render returns the contents of the files, by name.
func render(r Results) (map[string][]byte, error) {
	raw, err := contest.JSON(r)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"peers.json": raw, "peers.md": []byte(markdown(scenarios, r, true))}
	for _, c := range charts {
		var rows []Row
		for _, row := range summarize(scenarios, r.Trials) {
			if row.Scenario.Chart == c.name && charted(row.Metric) {
				rows = append(rows, row)
			}
		}
		draw := svg
		if c.lines {
			draw = lines
		}
		drawn, err := draw(c.title, rows)
		if err != nil {
			return nil, err
		}
		if drawn != "" {
			files[c.name+".svg"] = []byte(drawn)
		}
	}
	return files, nil
}

// The marks in a page between which the results are. What was there before goes.
const (
	markBegin = "<!-- peers: written by core/lab/peers -->\n"
	markEnd   = "<!-- /peers -->\n"
)

// errNoMarks is of a page that has no place for the results.
var errNoMarks = errors.New("there is no line " + strings.TrimSpace(markBegin) + " with a line " + strings.TrimSpace(markEnd) + " after it")

// insert puts the table and the charts, which lie in the folder, between the marks of the
// page.
func insert(page, folder, table string, files map[string][]byte) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(text), markBegin)
	_, foot, ended := strings.Cut(rest, markEnd)
	if !found || !ended {
		return fmt.Errorf("%s: %w", page, errNoMarks)
	}
	way, err := filepath.Rel(filepath.Dir(page), folder)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(head + markBegin)
	b.WriteString(table)
	for _, c := range charts {
		if files[c.name+".svg"] != nil {
			fmt.Fprintf(&b, "\n![%s](%s)\n", c.title, filepath.ToSlash(filepath.Join(way, c.name+".svg")))
		}
	}
	b.WriteString(markEnd + foot)
	return os.WriteFile(page, []byte(b.String()), 0o644)
}
