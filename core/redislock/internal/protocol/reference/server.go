// Package reference is a Redis server that knows the lock's scripts and nothing
// else, written from their rules in Go. It judges the scripts in tests, step by
// step, and stands in for the server in simulations.
package reference

import (
	"encoding"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Server is one server. It is safe for concurrent use.
type Server struct {
	now func() time.Time

	mu    sync.Mutex
	locks map[string]*lock
}

// Message is something published to a channel.
type Message struct {
	Channel string
	Payload string
}

// New returns a server without data. now is its wall clock.
func New(now func() time.Time) *Server {
	return &Server{now: now, locks: make(map[string]*lock)}
}

// Flush forgets all data, as FLUSHALL and a restart without persistence do.
func (s *Server) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.locks)
}

// Run executes a script, given by name, and returns its reply in the shape in
// which a Redis client returns it, with what it published.
func (s *Server) Run(script, key string, args []any) (any, []Message, error) {
	words, err := Words(args)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	us := s.now().UnixMicro()
	c := &call{args: words, key: key, us: us, now: us / 1000}
	c.begin(s.locks[key])
	var reply any
	switch script {
	case protocol.Acquire.Name:
		reply = c.acquire()
	case protocol.End.Name:
		reply = c.end()
	case protocol.Renew.Name:
		reply = c.renew()
	case protocol.Oust.Name:
		reply = c.oust()
	case protocol.Inspect.Name:
		return c.inspect(), nil, c.err
	default:
		return nil, nil, fmt.Errorf("run script %q: there is no such script", script)
	}
	if c.err != nil {
		return nil, nil, c.err
	}
	if c.wrote {
		c.lock.until = c.now + c.last() + protocol.Linger.Milliseconds()
		s.locks[key] = c.lock
	}
	return reply, c.messages(), nil
}

// Words turns arguments into what a server sees of them.
func Words(args []any) ([]string, error) {
	words := make([]string, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case string:
			words[i] = a
		case *string:
			words[i] = *a
		case encoding.BinaryMarshaler:
			text, err := a.MarshalBinary()
			if err != nil {
				return nil, err
			}
			words[i] = string(text)
		case int64:
			words[i] = strconv.FormatInt(a, 10)
		default:
			return nil, fmt.Errorf("argument %d of a script is a %T, which is not possible", i, a)
		}
	}
	return words, nil
}
