package policies

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lockaround/lockaround/core"
)

// maxSize is that of a file in bytes: more than any program has policies for.
const maxSize = 1 << 20

// maxFaults is how many faults are told of one file.
const maxFaults = 20

// Error is one fault of a file. It is a [core.ErrPolicy].
type Error struct {
	File   string // as given to Load; empty for Parse
	Line   int    // from 1
	Column int    // from 1, in characters
	Detail string // what is wrong and what would be right; quotes the file
}

// Error returns the fault after its place, as compilers write it.
func (e *Error) Error() string {
	file := e.File
	if file == "" {
		file = "policies"
	}
	return fmt.Sprintf("%s:%d:%d: %s", file, e.Line, e.Column, e.Detail)
}

// Unwrap returns core.ErrPolicy.
func (*Error) Unwrap() error { return core.ErrPolicy }

// Load reads a file, see [Parse]. If it cannot be read, the error is that of the
// operating system.
func Load(path string) (map[string]core.Override, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return parse(path, data)
}

// read reads a file, of which it needs no more than says that it is too large.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock policies: %w", err)
	}
	defer func() { _ = f.Close() }() // what was read has been read
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("lock policies: %w", err)
	}
	return data, nil
}

// Parse reads the overrides that data holds as YAML or JSON, by the names of their
// policies. The map is not nil if and only if the error is nil, which joins an [*Error]
// for each fault, of which it tells the first twenty. Parse keeps nothing of data.
func Parse(data []byte) (map[string]core.Override, error) { return parse("", data) }

func parse(file string, data []byte) (map[string]core.Override, error) {
	d := &document{file: file}
	overrides := d.overrides(data)
	if len(d.faults) > 0 {
		return nil, errors.Join(d.faults...)
	}
	return overrides, nil
}
