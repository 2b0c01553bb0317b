package contest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// JSON returns the results with a line for each trial, of which the scenario is the first field.
func JSON(results any) ([]byte, error) {
	raw, err := json.Marshal(results)
	if err != nil {
		return nil, err
	}
	// Inside of a string its quotes would be escaped.
	return append(bytes.ReplaceAll(raw, []byte(`{"scenario":`), []byte("\n"+`{"scenario":`)), '\n'), nil
}

// Write writes files, which are given by name, into a folder.
func Write(folder string, files map[string][]byte) error {
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
