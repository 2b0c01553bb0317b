package etcdlock

import (
	"sync"
	"time"
)

// refusals are the keys whose requests were refused recently. The zero value is ready for
// use.
type refusals struct {
	mu    sync.Mutex
	byKey map[string]refusal
}

type refusal struct {
	at     time.Time // the latest
	told   time.Time
	holder int64 // the token of the holder that was told
}

const (
	// takenFor is how long a key is remembered as taken. During that time a request that
	// would not wait reads the queue first: unlike a write, a read goes to no disk.
	takenFor = time.Second

	// tellInterval is how often a session tells one holder of its refused requests.
	tellInterval = 200 * time.Millisecond

	// maxRefusals bounds the keys that are remembered.
	maxRefusals = 1024
)

// recentlyRefused reports whether the key was found taken recently.
func (r *refusals) recentlyRefused(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byKey[key]
	return ok && now.Sub(last.at) < takenFor
}

// add adds a refusal, and reports whether to tell the holder with that token.
func (r *refusals) add(key string, holder int64, now time.Time) (tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil || len(r.byKey) >= maxRefusals {
		r.byKey = make(map[string]refusal)
	}
	last := r.byKey[key]
	tell = last.holder != holder || now.Sub(last.told) >= tellInterval
	if tell {
		last.holder, last.told = holder, now
	}
	last.at = now
	r.byKey[key] = last
	return tell
}
