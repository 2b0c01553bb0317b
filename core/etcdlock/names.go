package etcdlock

import (
	"encoding/hex"
	"fmt"
	"net/url"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// names are the names that an owner uses for a key.
type names struct {
	prefix    string // of all names of the key
	queue     string // the prefix of all places
	owner     string // the prefix of the owner's place, and of no other
	place     string // the owner's
	contended string
}

// namesOf returns the names for a session's own owner. Of another session's owner the place is
// not known.
func namesOf(id driver.ID, from driver.Origin) names {
	prefix, owner := keyPrefixOf(id.Key), hex.EncodeToString(id.Owner[:])
	return names{
		prefix:    prefix,
		queue:     prefix + queuePart,
		owner:     prefix + queuePart + owner,
		place:     prefix + queuePart + owner + suffix(from),
		contended: prefix + contendedPart + owner,
	}
}

// KeyPrefix begins the name of every key in etcd, and is the version of the protocol.
// Grant a role readwrite on it with --prefix.
const KeyPrefix = "la1/"

// The two kinds of names of a key. Neither is a prefix of the other.
const (
	queuePart     = "q/" // the place of an owner; see origin.go for what follows the owner
	contendedPart = "k/" // written for a moment by an owner that would not wait
)

// keyPrefixOf returns the prefix of all names of a key. The key is escaped, so that the
// prefix of one key never begins with that of another.
func keyPrefixOf(key string) string { return KeyPrefix + url.PathEscape(key) + "/" }

// aliveKeyOf returns the name of a lease's alive key. That key is on the lease and is deleted
// with it, so it shows that the lease has not ended. Its name has no key's prefix, since a
// bare % is always escaped.
func aliveKeyOf(id clientv3.LeaseID) string { return fmt.Sprintf("%s%%/%x", KeyPrefix, int64(id)) }
