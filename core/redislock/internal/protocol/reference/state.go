package reference

import (
	"slices"
	"strconv"
)

// State is a lock's state, for comparison. Times are ms of the server's clock.
type State struct {
	Holders []Holder
	Thin    bool              // the key is a string
	Token   int64             // the next one that is issued is greater
	Ousted  int64             // up to which token leases were taken from their holders
	Buried  []string          // owners that were given up
	Queue   []Place           // without the removed places
	Traces  map[string]string // of who was granted the key last ("d") and of places ("d" and a number), after the owner
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

func (st *State) note(field string, t trace) {
	if st.Traces == nil {
		st.Traces = make(map[string]string)
	}
	st.Traces[field] = t.owner + t.text
}

// Until returns until when the server keeps a key, in ms.
func (s *Server) Until(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.locks[key]; l != nil {
		return l.until
	}
	return 0
}

// State returns what the server knows of a key.
func (s *Server) State(key string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.find(key)
	if l == nil {
		return State{}
	}
	st := State{Thin: l.thin, Token: l.token, Ousted: l.ousted, Buried: slices.Clone(l.buried)}
	for i, t := range l.traces {
		st.note("d"+strconv.FormatInt(i, 10), t)
	}
	if l.taker.owner != "" {
		st.note("d", l.taker)
	}
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
