package roomtest

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

// Wrongs are what code that a program hands in may do and should not.
var Wrongs = map[string]func(forever <-chan struct{}){
	"panics":             func(<-chan struct{}) { panic("on purpose") },
	"ends its goroutine": func(<-chan struct{}) { runtime.Goexit() },
	"never returns":      func(forever <-chan struct{}) { <-forever },
}

// WrongCodec is JSON, but for what is named "bad".
type WrongCodec struct {
	Do              func()
	Marshals, Reads bool // when it is done
}

// Marshal encodes.
func (c WrongCodec) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if c.Marshals && strings.Contains(string(data), "bad") {
		c.Do()
	}
	return data, err
}

// Unmarshal decodes.
func (c WrongCodec) Unmarshal(data []byte, v any) error {
	if c.Reads && strings.Contains(string(data), "bad") {
		c.Do()
	}
	return json.Unmarshal(data, v)
}

// WrongError is an error whose methods do something that none should.
type WrongError struct{ Do func() }

func (e WrongError) Error() string { e.Do(); return "" }

// Is does it as well.
func (e WrongError) Is(error) bool { e.Do(); return false }

// Forever returns a channel that is closed when the test ends, as a call that never returns waits for.
func Forever(t *testing.T) <-chan struct{} {
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	return forever
}

// Begin does something on a goroutine of its own; the channel has how it ended.
func Begin(do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	return ended
}
