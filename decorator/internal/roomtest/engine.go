package roomtest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
)

// Engine opens an engine on a driver, and closes it with the test. Its log is discarded.
func Engine(t testing.TB, d driver.Driver, o ...core.Option) *core.Engine {
	t.Helper()
	e, err := core.New(d, append(o, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// Log keeps what it is told.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// LoggedEngine opens an engine on a driver, with its log, and closes it with the test.
func LoggedEngine(t *testing.T, d driver.Driver) (*core.Engine, *Log) {
	t.Helper()
	l := &Log{}
	e, err := core.New(d, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.NewTextHandler(l, nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, l
}

// Captured is a driver that shows the session that was opened.
type Captured struct {
	driver.Driver
	Session driver.Session
}

// Open opens a session of the driver.
func (d *Captured) Open(c driver.Config) (_ driver.Session, err error) {
	d.Session, err = d.Driver.Open(c)
	return d.Session, err
}
