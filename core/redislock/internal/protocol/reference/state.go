package reference

import "slices"

// State is a lock's state, for comparison. Times are ms of the server's clock.
type State struct {
	Held    bool
	Owner   string // empty while the key is kept for MinHold
	Channel string
	Expires int64
	Length  int64
	Token   int64
	Ended   []string
	Queue   []Place // without the places that were left
}

// Place is an owner's place in the queue.
type Place struct {
	Owner   string
	Channel string
	Enrol   int64
	Limit   int64
}

// State returns what the server knows of a key.
func (s *Server) State(key string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[key]
	if l == nil {
		return State{}
	}
	st := State{Held: l.held, Owner: l.owner, Channel: l.channel, Expires: l.expires, Length: l.length, Token: l.token, Ended: slices.Clone(l.ended)}
	for _, p := range l.queue {
		if p != nil {
			st.Queue = append(st.Queue, Place{p.owner, p.channel, p.enrol, p.limit})
		}
	}
	return st
}
