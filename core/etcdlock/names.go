package etcdlock

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// names are the names that an owner uses for a key.
type names struct {
	prefix    string // of all names of the key
	queue     string // the prefix of all places
	place     string // the owner's, on its first etcd lease; see withPlace
	contended string
}

// namesOf returns the names for an owner, apart from its place.
func namesOf(id driver.ID) names {
	prefix := keyPrefixOf(id.Key)
	return names{prefix: prefix, queue: prefix + queuePart, contended: prefix + contendedPart + ownerName(id)}
}

// withPlace returns the names with the place of an owner whose first etcd lease is that one. etcd
// searches all names that a key has had, until they are compacted away. So the places that are on
// a lease one after the other have one name. It is as long as that of an owner, which releases
// before this one write, and which begins with zeros for nobody.
func (n names) withPlace(on clientv3.LeaseID, from driver.Origin) names {
	number := binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(on)) // its bits
	n.place = n.queue + hex.EncodeToString(number) + suffix(from)
	return n
}

// ref returns what another session finds the owner's place by.
func (n names) ref(id driver.ID) string { return ownerName(id) + refSeparator + n.place[len(n.queue):] }

// byRef reads the place of an owner. ok is false if ref is another owner's. Releases before this
// one grant leases without a ref, whose place has the owner's name.
func (n names) byRef(id driver.ID, ref string) (read clientv3.Op, ok bool) {
	owner, place, found := strings.Cut(ref, refSeparator)
	if !found {
		return clientv3.OpGet(n.queue+ownerName(id), clientv3.WithPrefix()), ref == ""
	}
	return clientv3.OpGet(n.queue + place), owner == ownerName(id)
}

const refSeparator = " is at "

func ownerName(id driver.ID) string { return hex.EncodeToString(id.Owner[:]) }

// KeyPrefix begins the name of every key in etcd, and is the version of the protocol.
// Grant a role readwrite on it with --prefix.
const KeyPrefix = "la1/"

// The two kinds of names of a key. Neither is a prefix of the other.
const (
	queuePart     = "q/" // the place of an owner; see origin.go for the end of its name
	contendedPart = "k/" // written for a moment by an owner that would not wait
)

// keyPrefixOf returns the prefix of all names of a key. The key is escaped, so that the
// prefix of one key never begins with that of another.
func keyPrefixOf(key string) string { return KeyPrefix + url.PathEscape(key) + "/" }

// aliveKeyOf returns the name of a lease's alive key. That key is on the lease and is deleted
// with it, so it shows that the lease has not ended. Its name has no key's prefix, since a
// bare % is always escaped.
func aliveKeyOf(id clientv3.LeaseID) string { return fmt.Sprintf("%s%%/%x", KeyPrefix, int64(id)) }
