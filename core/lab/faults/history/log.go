package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Log is a process's file. It is safe for concurrent use.
type Log struct{ file *os.File }

// Create begins a file.
func Create(path string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{file}, nil
}

// Add writes an event down. It has left the process when Add returns, so a kill loses
// nothing. It panics if that cannot be done: a history with holes proves nothing.
func (l *Log) Add(e Event) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Errorf("write the history: %w", err))
	}
}

// Close ends the file.
func (l *Log) Close() error { return l.file.Close() }

// Load reads the files of a folder, in their order. What was written after Load began
// may be in it or not, but for what had returned before. A last line that is cut off is
// left out: its process was killed, or is writing.
func Load(folder string) ([]Event, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var out []Event
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		lines := bytes.Split(text, []byte("\n"))
		for i, line := range lines[:len(lines)-1] {
			var e Event
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s, line %d: %w", filepath.Base(path), i+1, err)
			}
			if e.Op == "" {
				return nil, fmt.Errorf("%s, line %d: %w", filepath.Base(path), i+1, errNoOp)
			}
			out = append(out, e)
		}
	}
	return out, nil
}

var errNoOp = errors.New("there is no op; every event has one")

// Until returns the events that had happened by then: returned, or called if they do not
// return.
func Until(events []Event, end int64) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return max(e.Call, e.Return) > end })
}
