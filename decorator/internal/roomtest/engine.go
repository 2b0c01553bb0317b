package roomtest

import (
	"log/slog"
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
