package reference

import "slices"

// State is a lock's state, for comparison. Times are ms of the server's clock.
type State struct {
	Holders []Holder
	Token   int64 // the latest
	Ousted  int64 // up to which token leases were taken from their holders
	Ended   []string
	Queue   []Place // without the removed places
}

// Holder is one lease.
type Holder struct {
	Owner   string // empty while the key is kept for MinHold
	Channel string
	Room    int64 // how many may hold together; 0 for any number
	Token   int64
	Expires int64
	Length  int64
}

// Place is an owner's place in the queue.
type Place struct {
	Owner    string
	Channel  string
	PlaceTTL int64
	Limit    int64
	Room     int64
}

// State returns what the server knows of a key.
func (s *Server) State(key string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[key]
	if l == nil {
		return State{}
	}
	st := State{Token: l.token, Ousted: l.ousted, Ended: slices.Clone(l.ended)}
	for _, h := range l.holders {
		st.Holders = append(st.Holders, Holder{h.owner, h.channel, h.room, h.token, h.expires, h.length})
	}
	for _, p := range l.queue {
		if p != nil {
			st.Queue = append(st.Queue, Place{p.owner, p.channel, p.placeTTL, p.limit, p.room})
		}
	}
	return st
}
