// Package reference is a Redis server that knows the lock's scripts and nothing
// else, written from their rules in Go. It judges the scripts in tests, step by
// step, and stands in for the server in simulations.
package reference

import (
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Server is one server. It is safe for concurrent use.
type Server struct {
	now func() time.Time

	mu      sync.Mutex
	locks   map[string]*lock
	streams map[string][2]int64 // the ms and the number of the latest entry
}

// Message is something published to a channel.
type Message struct {
	Channel string
	Payload string
}

// New returns a server without data. now is its wall clock.
func New(now func() time.Time) *Server {
	return &Server{now: now, locks: make(map[string]*lock), streams: make(map[string][2]int64)}
}

// Flush forgets all data, as FLUSHALL and a restart without persistence do.
func (s *Server) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.locks)
	clear(s.streams)
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
	c := &call{args: words, key: key, now: s.now().UnixMilli(), draw: func() int64 {
		ms, number := s.draw(key)
		if number >= 1000 {
			ms, number = ms+1, 0
			s.streams[protocol.Stream(key)] = [2]int64{ms, number}
		}
		return ms*1000 + number
	}}
	c.begin(s.find(key))
	var reply any
	switch script {
	case protocol.Take.Name:
		reply = c.take()
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
	switch {
	case c.gone:
		delete(s.locks, key)
	case c.wrote:
		s.locks[key] = c.left
	}
	return reply, c.messages(), nil
}

// find returns what the server knows of a key, or nil. What has expired is gone for good, even if
// the clock goes back.
func (s *Server) find(key string) *lock {
	l := s.locks[key]
	if l != nil && l.until <= s.now().UnixMilli() {
		delete(s.locks, key)
		return nil
	}
	return l
}

// Draw adds an entry to the stream of a key, and returns its ID, as XADD does. at is the ID that it
// shall have, or empty.
func (s *Server) Draw(key, at string) (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at == "" {
		ms, number := s.draw(key)
		return fmt.Sprintf("%d-%d", ms, number), nil
	}
	var next [2]int64
	if _, err := fmt.Sscanf(at, "%d-%d", &next[0], &next[1]); err != nil {
		return "", err
	}
	last := s.streams[protocol.Stream(key)]
	if slices.Compare(next[:], last[:]) <= 0 {
		return "", errSmall
	}
	s.streams[protocol.Stream(key)] = next
	return at, nil
}

// draw adds an entry to the stream of a key, with an ID of the server's choice. s.mu is held.
func (s *Server) draw(key string) (ms, number int64) {
	last, there := s.streams[protocol.Stream(key)]
	now := s.now()
	switch ms = now.UnixMilli(); {
	case !there:
		number = now.UnixMicro() % 1000 / 2
	case ms <= last[0]:
		ms, number = last[0], last[1]+1
	}
	s.streams[protocol.Stream(key)] = [2]int64{ms, number}
	return ms, number
}

var errSmall = errors.New("ERR The ID specified in XADD is equal or smaller than the target stream top item")

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
