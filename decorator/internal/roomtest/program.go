package roomtest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
)

// Wrongs are what code that a program hands in may do and should not.
var Wrongs = map[string]func(forever <-chan struct{}){
	"panics":             func(<-chan struct{}) { panic("on purpose") },
	"ends its goroutine": func(<-chan struct{}) { runtime.Goexit() },
	"never returns":      func(forever <-chan struct{}) { <-forever },
}

// Forever returns a channel that is closed when the test ends, as a call that never returns waits for.
func Forever(t *testing.T) <-chan struct{} {
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	return forever
}

// WrongCodec is JSON, but for what is named "bad".
type WrongCodec struct {
	Do               func()
	Writing, Reading bool // when it does so
}

// Marshal encodes v.
func (c WrongCodec) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if c.Writing && strings.Contains(string(data), "bad") {
		c.Do()
	}
	return data, err
}

// Unmarshal decodes data.
func (c WrongCodec) Unmarshal(data []byte, v any) error {
	if c.Reading && strings.Contains(string(data), "bad") {
		c.Do()
	}
	return json.Unmarshal(data, v)
}

// WrongError is an error whose methods do something that none should.
type WrongError struct{ Do func() }

func (e WrongError) Error() string { e.Do(); return "" }

// Is is what errors.Is asks.
func (e WrongError) Is(error) bool { e.Do(); return false }

// Begin calls do on a goroutine of its own.
func Begin(do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	return ended
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

// ExpectCells expects of the first row of a panel what a column and its cell say, one pair after the other.
func ExpectCells(t *testing.T, p core.Paneler, want ...string) {
	t.Helper()
	panel := p.Panel(t.Context())
	if panel.Err != nil || panel.Title == "" || len(panel.Rows) == 0 {
		t.Fatalf("the panel is %+v", panel)
	}
	row := map[string]string{}
	for _, r := range panel.Rows {
		if len(r) != len(panel.Columns) {
			t.Errorf("a row has %d cells for %d columns", len(r), len(panel.Columns))
		}
	}
	for i, c := range panel.Columns {
		row[c] = fmt.Sprint(panel.Rows[0][i])
	}
	for i := 0; i < len(want); i += 2 {
		if row[want[i]] != want[i+1] {
			t.Errorf("%s is %q, want %q; the row is %v", want[i], row[want[i]], want[i+1], row)
		}
	}
}
