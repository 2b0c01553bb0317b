package etcdlock

import (
	"sync"

	"github.com/lockaround/lockaround/core/driver"
)

// begun are the requests whose first step had no answer. Acquire goes on with them. The zero value
// is ready for use.
type begun struct {
	mu     sync.Mutex
	byID   map[driver.ID]*request
	closed bool
}

// add adds a request, and reports false if nobody can go on with it any more.
func (b *begun) add(req *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if b.byID == nil {
		b.byID = make(map[driver.ID]*request)
	}
	b.byID[req.ID] = req
	return true
}

// close returns the requests that nobody has gone on with.
func (b *begun) close() (left map[driver.ID]*request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left, b.byID, b.closed = b.byID, nil, true
	return left
}

// take removes and returns the request of an owner; nil if there is none.
func (b *begun) take(id driver.ID) *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	req := b.byID[id]
	delete(b.byID, id)
	return req
}
