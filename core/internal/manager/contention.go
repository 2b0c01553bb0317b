package manager

import "sync"

// Contention is told once that somebody else waits for what is held.
type Contention struct {
	once sync.Once
	c    chan struct{}
}

// NewContention returns one that was not told.
func NewContention() *Contention { return &Contention{c: make(chan struct{})} }

// Told is closed when it is told.
func (c *Contention) Told() <-chan struct{} { return c.c }

func (c *Contention) tell() { c.once.Do(func() { close(c.c) }) }

// Contended returns the hold's own Contention, the same for each call.
func (h *Hold) Contended() *Contention {
	h.lock()
	defer h.unlock()
	x := h.more()
	if x.own == nil {
		x.own = NewContention()
		h.tell(x.own)
	}
	return x.own
}

// TellContended tells c as soon as somebody else is known to wait for the key.
func (h *Hold) TellContended(c *Contention) {
	h.lock()
	defer h.unlock()
	h.tell(c)
}

// tell is TellContended with the lock held.
func (h *Hold) tell(c *Contention) {
	if l := h.lease; l.current() && (l.contended || l.line.first != nil && l.line.full()) {
		c.tell()
		return
	}
	x := h.more()
	x.tell = append(x.tell, c)
}

// tellContended tells those who hold that somebody else waits.
func (l *lease) tellContended() {
	for h := l.hold; h != nil; h = h.next {
		if h.extras == nil {
			continue
		}
		for _, c := range h.extras.tell {
			c.tell()
		}
		h.extras.tell = nil
	}
}
