package redislock

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// busyKeys remembers which keys somebody else has wanted lately. Two keys may share a place: that
// costs a key that nobody else wants the dearer script, and nothing else.
type busyKeys struct {
	at [1024]atomic.Int64 // ms of the Unix time
}

// busyFor is how long a key counts as wanted.
const busyFor = time.Second

var busySeed = maphash.MakeSeed()

func (b *busyKeys) of(key string) *atomic.Int64 {
	return &b.at[maphash.String(busySeed, key)%uint64(len(b.at))]
}

// note notes that somebody else wants a key.
func (b *busyKeys) note(key string, now time.Time) { b.of(key).Store(now.UnixMilli()) }

func (b *busyKeys) noteIf(wanted bool, key string, now time.Time) {
	if wanted {
		b.note(key, now)
	}
}

// lately reports whether somebody else has wanted a key.
func (b *busyKeys) lately(key string, now time.Time) bool {
	at := b.of(key).Load()
	return at != 0 && now.UnixMilli()-at < busyFor.Milliseconds()
}
