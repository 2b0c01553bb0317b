package etcdlock

import (
	"sync"
	"time"
)

// refusals are the keys whose requests were refused recently, or had to wait. The zero value is
// ready for use.
type refusals struct {
	mu    sync.Mutex
	byKey map[string]refusal
}

type refusal struct {
	at     time.Time // the latest
	told   time.Time
	holder int64 // the token of the holder that was told
	waited time.Time
}

const (
	// takenFor is how long a key is remembered as taken. During that time a request that
	// would not wait reads the queue first: unlike a write, a read goes to no disk.
	takenFor = time.Second

	// tellInterval is how often a session tells one holder of its refused requests.
	tellInterval = 200 * time.Millisecond

	// waitedFor is how long a key is remembered as one that has been waited for. During that
	// time a request that would wait takes its place in the queue at once.
	waitedFor = 10 * time.Second

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

// recentlyWaitedFor reports whether a request had to wait for the key recently.
func (r *refusals) recentlyWaitedFor(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byKey[key]
	return ok && now.Sub(last.waited) < waitedFor
}

// recently reports whether a request was refused or had to wait recently.
func (r *refusals) recently(key string, now time.Time) bool {
	return r.recentlyRefused(key, now) || r.recentlyWaitedFor(key, now)
}

// addWait notes that a request has to wait for the key.
func (r *refusals) addWait(key string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.of(key)
	last.waited = now
	r.byKey[key] = last
}

// of returns what is known of a key, and makes room for it. r.mu is held.
func (r *refusals) of(key string) refusal {
	if r.byKey == nil || len(r.byKey) >= maxRefusals {
		r.byKey = make(map[string]refusal)
	}
	return r.byKey[key]
}

// add adds a refusal, and reports whether to tell the holder with that token.
func (r *refusals) add(key string, holder int64, now time.Time) (tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.of(key)
	tell = last.holder != holder || now.Sub(last.told) >= tellInterval
	if tell {
		last.holder, last.told = holder, now
	}
	last.at = now
	r.byKey[key] = last
	return tell
}
