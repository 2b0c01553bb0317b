// Package complaints keeps what a process says on its standard error.
package complaints

import "strings"

// Log keeps the beginning of what is written to it. The zero value is empty.
type Log struct{ kept []byte }

// Write drops what is too much. The error is nil.
func (c *Log) Write(b []byte) (int, error) {
	const most = 16 << 10
	c.kept = append(c.kept, b[:min(len(b), most-len(c.kept))]...)
	return len(b), nil
}

// String is the line that tells most: of a panic its first, otherwise the last.
func (c *Log) String() string {
	lines := strings.Split(strings.TrimSpace(string(c.kept)), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return lines[len(lines)-1]
}
