package main

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// write writes the results into the folder.
func write(folder string, r Results) error {
	files, err := render(r)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns the contents of the files, by name.
func render(r Results) (map[string][]byte, error) {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"peers.json": append(raw, '\n'), "peers.md": []byte(markdown(scenarios, r))}
	for _, c := range charts {
		var rows []Row
		for _, row := range summarize(scenarios, r.Trials) {
			if row.Scenario.Chart == c.name && charted(row.Metric) {
				rows = append(rows, row)
			}
		}
		drawn, err := svg(c.title, rows)
		if err != nil {
			return nil, err
		}
		if drawn != "" {
			files[c.name+".svg"] = []byte(drawn)
		}
	}
	return files, nil
}
