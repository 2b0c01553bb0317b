package etcdlock

import (
	"encoding/hex"
	"fmt"
	"net/url"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// KeyPrefix begins the name of every key in etcd, and is the version of the protocol.
// Grant a role readwrite on it with --prefix.
const KeyPrefix = "la1/"

// The parts of a lock are apart, so that a range of one does not meet the other.
const (
	queuePart = "q/" // a place for each owner
	knockPart = "k/" // of those who would not wait, for a moment
)

// roomOf returns what begins every name that belongs to a key. The key is escaped, so
// that no key's names begin with those of another.
func roomOf(key string) string { return KeyPrefix + url.PathEscape(key) + "/" }

// lifeOf names what shows that a lease of etcd has not ended: it is on that lease, and
// ends with it. No key's room begins like this, since a bare % is always escaped.
func lifeOf(id clientv3.LeaseID) string { return fmt.Sprintf("%s%%/%x", KeyPrefix, int64(id)) }

// names are those of one owner's claim on a key.
type names struct {
	room  string // begins all names of the key
	queue string // begins those of places
	place string // is the owner's
	knock string
}

func namesOf(id driver.ID) names {
	room, owner := roomOf(id.Key), hex.EncodeToString(id.Owner[:])
	return names{
		room:  room,
		queue: room + queuePart,
		place: room + queuePart + owner,
		knock: room + knockPart + owner,
	}
}
