package testservers

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is a server that the tests of a package share. It starts with the first one that asks for
// it. Its method is for any number of goroutines.
type Shared struct {
	start  func(testing.TB, ...string) *Server
	args   []string
	mu     sync.Mutex
	server *Server // nil before the start
}

var shares struct {
	sync.Mutex
	all []*Shared
}

// Share returns a server that start starts with these arguments when it is asked for: one of this
// package's functions, such as [PostgreSQL]. The package's TestMain has to end it by [Main].
func Share(start func(tb testing.TB, args ...string) *Server, args ...string) *Shared {
	s := &Shared{start: start, args: args}
	shares.Lock()
	defer shares.Unlock()
	shares.all = append(shares.all, s)
	return s
}

// For returns the server for a test, which fails if what it asks of the server fails. The test is
// skipped, or fails, if it does not start.
func (s *Shared) For(tb testing.TB) *Server {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		s.server = s.start(lasting{tb}, s.args...)
	}
	one := *s.server
	one.tb = tb
	return &one
}

func (s *Shared) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	err := s.server.s.Close()
	s.server = nil
	return err
}

// lasting is a test whose server outlasts it.
type lasting struct{ testing.TB }

// Cleanup does nothing.
func (lasting) Cleanup(func()) {}

// Context does not end with the test.
func (l lasting) Context() context.Context { return context.WithoutCancel(l.TB.Context()) }

// Main runs a package's tests and then ends the servers that they have shared:
//
//	func TestMain(m *testing.M) { os.Exit(testservers.Main{m}.Run()) }
type Main struct{ *testing.M }

// Run returns what the tests did, or 1 if a server does not end.
func (m Main) Run() int {
	code := m.M.Run()
	shares.Lock()
	defer shares.Unlock()
	for _, s := range shares.all {
		if err := s.end(); err != nil {
			fmt.Fprintf(os.Stderr, "end a server that was shared: %v\n", err)
			code = max(code, 1)
		}
	}
	return code
}
