package middleware

import (
	"bytes"
	"log"
	"log/slog"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // see captureLog
	goleak.VerifyTestMain(m)
}

// logBuffer collects what is logged. It is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// captureLog diverts slog's default for the rest of the test, which must not be
// parallel.
func captureLog(t testing.TB) *logBuffer {
	t.Helper()
	// SetDefault diverts package log as well, and does not undo that.
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	l := &logBuffer{}
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	return l
}
