// Package logtest collects what is logged in a test.
package logtest

import (
	"bytes"
	"log"
	"log/slog"
	"sync"
	"testing"
)

// Buffer collects what is logged. It is safe for concurrent use. Its zero value is empty.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write adds p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was logged.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Capture diverts slog's default for the rest of the test, which must not be parallel.
func Capture(t testing.TB) *Buffer {
	t.Helper()
	// SetDefault diverts package log as well, and does not undo that.
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	b := &Buffer{}
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	return b
}
