package etcdlock

import (
	"sync"
	"time"
)

const (
	// warm is how long a key is remembered as taken. Until then a request that would
	// not wait begins by reading, which is not written to the disks of a majority.
	warm = time.Second

	// knocking is how often one holder hears of a session's requests that would not
	// wait.
	knocking = 200 * time.Millisecond

	// refused is how many keys are remembered at most.
	refused = 1024
)

// refusals are the keys for which requests were refused of late. The zero value is
// ready for use.
type refusals struct {
	mu    sync.Mutex
	byKey map[string]refusal
}

type refusal struct {
	at      time.Time // the latest
	knocked time.Time
	holder  int64 // token of who was told
}

// recent reports whether the key was found taken a short time ago.
func (r *refusals) recent(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byKey[key]
	return ok && now.Sub(last.at) < warm
}

// add takes in a refusal, and reports whether to tell the holder with that token.
func (r *refusals) add(key string, holder int64, now time.Time) (knock bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil || len(r.byKey) >= refused {
		r.byKey = make(map[string]refusal)
	}
	last := r.byKey[key]
	knock = last.holder != holder || now.Sub(last.knocked) >= knocking
	if knock {
		last.holder, last.knocked = holder, now
	}
	last.at = now
	r.byKey[key] = last
	return knock
}
