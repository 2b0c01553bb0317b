// Package resource is what the locks of a run protect: a counter for each key, in the
// memory of the laboratory, behind a guard that knows the largest token it has seen.
package resource

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// Request asks for the counter of a key, or to set it.
type Request struct {
	Process int    `json:"process"`
	Client  int    `json:"client"`
	Key     string `json:"key"`
	Token   int64  `json:"token"`
	Mode    string `json:"mode,omitempty"` // of the lock, see history; who is not exclusive does not write
	Write   bool   `json:"write,omitempty"`
	Value   int64  `json:"value,omitempty"` // to set it to
	Last    bool   `json:"last,omitempty"`  // of a critical section
}

// Reply is the answer.
type Reply struct {
	Value int64  `json:"value"`
	Error string `json:"error,omitempty"`
}

// Server keeps the counters. It is safe for concurrent use.
type Server struct {
	listen net.Listener
	log    func(history.Event)
	all    sync.WaitGroup

	order   sync.Mutex // one request after the other
	guard   fence.Memory
	largest map[string]int64 // token that the guard has admitted
	writers map[string]int64 // of these, the largest that is exclusive

	mu       sync.Mutex
	counters map[string]int64
	inside   map[Holder]time.Time // who has read and is to come once more, since when
	writes   int
	conns    map[net.Conn]bool
	closed   bool
}

// Holder is a client in its critical section.
type Holder struct {
	Process, Client int
	Key             string
}

// Serve listens on a Unix socket. log gets what was asked and answered, in the order in
// which it took effect on each key.
func Serve(path string, log func(history.Event)) (*Server, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &Server{listen: l, log: log, largest: map[string]int64{}, writers: map[string]int64{}, counters: map[string]int64{}, inside: map[Holder]time.Time{}, conns: map[net.Conn]bool{}}
	s.all.Go(s.accept)
	return s, nil
}

// Close ends the server and its connections.
func (s *Server) Close() error {
	err := s.listen.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // who asked has gone
	}
	s.mu.Unlock()
	s.all.Wait()
	return err
}

// Writes is how many were accepted.
func (s *Server) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Counter is what a key's counter is.
func (s *Server) Counter(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters[key]
}

// Inside returns who has been in a critical section for the longest, of the processes
// that qualify, and for how long; 0 if nobody is.
func (s *Server) Inside(qualifies func(process int) bool) (Holder, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var who Holder
	var longest time.Duration
	for h, since := range s.inside {
		if d := time.Since(since); qualifies(h.Process) && d > longest {
			who, longest = h, d
		}
	}
	return who, longest
}

// EnteredSince returns for how long somebody has been in a critical section that he has
// entered since then: the longest; 0 if nobody has.
func (s *Server) EnteredSince(then time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var longest time.Duration
	for _, since := range s.inside {
		if since.After(then) {
			longest = max(longest, time.Since(since))
		}
	}
	return longest
}

// Gone forgets a process that has ended in its critical sections.
func (s *Server) Gone(process int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.inside {
		if h.Process == process {
			delete(s.inside, h)
		}
	}
}

func (s *Server) accept() {
	for {
		c, err := s.listen.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			_ = c.Close() // as all others
		}
		s.conns[c] = true
		s.mu.Unlock()
		s.all.Go(func() { s.converse(c) })
	}
}

// converse answers one client.
func (s *Server) converse(c net.Conn) {
	defer func() {
		_ = c.Close() // the client has gone
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
	from, to := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var r Request
		if from.Decode(&r) != nil || to.Encode(s.answer(r)) != nil {
			return
		}
	}
}

func (s *Server) answer(r Request) Reply {
	e := history.Event{
		Process: r.Process, Client: r.Client, Key: r.Key, Op: history.Read, Mode: r.Mode, Token: r.Token, Value: r.Value,
		Call: history.Now(),
	}
	if r.Write {
		e.Op = history.Write
	}
	note := func() {
		e.Return = history.Now()
		s.log(e)
	}
	s.order.Lock()
	defer s.order.Unlock()
	err := s.admit(r, func() {
		e.Value = s.apply(r)
		note()
	})
	if err != nil {
		e.Error = err.Error()
		if errors.Is(err, fence.ErrStale) {
			e.Error = history.Stale
		}
		s.refuse(r)
		note()
	}
	return Reply{Value: e.Value, Error: e.Error}
}

// admit is the guard. The tokens of those who hold together have no order among
// themselves, and it refuses one of them only if a writer has come with a larger one; yet
// no writer is admitted with a smaller one than theirs.
func (s *Server) admit(r Request, do func()) error {
	number := r.Token
	if r.Mode != "" {
		if r.Token < s.writers[r.Key] {
			return fence.ErrStale
		}
		number = max(number, s.largest[r.Key])
	}
	return s.guard.Do(context.Background(), fence.Token{Key: r.Key, Number: number}, func() error {
		s.largest[r.Key] = number
		if r.Mode == "" {
			s.writers[r.Key] = number
		}
		do()
		return nil
	})
}

func (s *Server) apply(r Request) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := Holder{r.Process, r.Client, r.Key}
	if r.Write || r.Last {
		delete(s.inside, who)
	} else {
		s.inside[who] = time.Now()
	}
	if !r.Write {
		return s.counters[r.Key]
	}
	s.counters[r.Key] = r.Value
	s.writes++
	return r.Value
}

func (s *Server) refuse(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inside, Holder{r.Process, r.Client, r.Key})
}

// Client asks for one client of a process. It is not for concurrent use.
type Client struct {
	conn net.Conn
	from *json.Decoder
	to   *json.Encoder
}

// Dial connects to the server.
func Dial(path string) (*Client, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &Client{c, json.NewDecoder(c), json.NewEncoder(c)}, nil
}

// Ask returns the answer; the error is that there is none.
func (c *Client) Ask(r Request) (Reply, error) {
	if err := c.to.Encode(r); err != nil {
		return Reply{}, err
	}
	var reply Reply
	return reply, c.from.Decode(&reply)
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
