package child

import "strings"

// complaints are the beginning of what a process says on its standard error. The zero value
// is empty.
type complaints struct{ kept []byte }

// Write drops what is too much. The error is nil.
func (c *complaints) Write(b []byte) (int, error) {
	const most = 16 << 10
	c.kept = append(c.kept, b[:min(len(b), most-len(c.kept))]...)
	return len(b), nil
}

// String is the line that tells most: of a panic its first, otherwise the last.
func (c *complaints) String() string {
	lines := strings.Split(strings.TrimSpace(string(c.kept)), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return lines[len(lines)-1]
}
