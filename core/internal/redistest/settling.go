package redistest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Settling runs a package's tests and then lets clients end: one that has lost its
// server looks for it every second, and only then notices that it was closed.
type Settling struct{ *testing.M }

// Run returns what the tests did.
func (m Settling) Run() int {
	code := m.M.Run()
	for began := time.Now(); goleak.Find() != nil && time.Since(began) < time.Minute; {
	}
	return code
}
