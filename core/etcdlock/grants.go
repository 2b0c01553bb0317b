package etcdlock

import (
	"sync"
)

// grants are the leases that the driver's sessions hold, by token. A token is a revision of
// etcd, so it is unique in its cluster.
type grants struct {
	mu      sync.Mutex
	byToken map[int64]grant
}

// grant is where a lease is in etcd.
type grant struct {
	name   string // of the owner's place
	create int64  // revision
}

func newGrants() *grants { return &grants{byToken: make(map[int64]grant)} }

func (g *grants) add(token int64, at grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byToken[token] = at
}

func (g *grants) remove(token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byToken, token)
}
