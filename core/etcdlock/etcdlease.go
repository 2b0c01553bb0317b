package etcdlock

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// etcdLease is a lease of etcd, as last granted or renewed.
type etcdLease struct {
	id      clientv3.LeaseID
	seconds int64     // it lasts at least so long from sent on
	sent    time.Time // before the answered grant or renewal was sent
	used    bool      // a place and the alive key were written on it
	key     string    // of its last place
}

// deadline returns when a holder who asked for ttl must consider the lease over.
func (l etcdLease) deadline(ttl time.Duration) time.Time {
	return driver.Deadline(l.sent, min(ttl, secondsToDuration(l.seconds)))
}

// minTTL is the shortest lease that etcd grants with its default election time-out: one and
// a half of it, in whole seconds.
const minTTL = 2 * time.Second

// secondsToDuration returns n seconds, or the longest duration if that is too long.
func secondsToDuration(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(n, most)) * time.Second
}

// seconds returns ttl in whole seconds, rounded up.
func seconds(ttl time.Duration) int64 {
	n := int64(ttl / time.Second)
	if ttl%time.Second > 0 {
		n++
	}
	return n
}
