package zklock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// state is the state of a member.
type state uint8

const (
	waiting state = iota
	granted
	lowered // a granted writer that lets readers in
)

var stateNames = [...]string{waiting: "waiting", granted: "granted", lowered: "lowered"}

// record is the content of a member's node: two words, and two more once the lease has been
// renewed.
//
//	waiting <milliseconds>
//	granted <milliseconds> [<token> <granted at, in milliseconds since 1970>]
//	lowered <milliseconds> [<token> <granted at>]
type record struct {
	state state
	ttl   time.Duration // how long the member lasts after this write
	token int64         // 0: this write is the grant
	since int64
}

func (r record) String() string {
	// Rounded up: the lease must not end at the servers before it ends for its holder.
	ms := (r.ttl + time.Millisecond - 1) / time.Millisecond
	s := stateNames[r.state] + " " + strconv.FormatInt(int64(ms), 10)
	if r.token != 0 {
		s += fmt.Sprintf(" %d %d", r.token, r.since)
	}
	return s
}

// parseRecord parses a record. Unknown content is an error, so that a node of another version is
// never deleted.
func parseRecord(data []byte) (record, error) {
	bad := fmt.Errorf("a lock node says something else than this version writes, in %d bytes", len(data))
	words := strings.Split(string(data), " ")
	if len(words) != 2 && len(words) != 4 {
		return record{}, bad
	}
	var r record
	switch words[0] {
	case "waiting":
	case "granted":
		r.state = granted
	case "lowered":
		r.state = lowered
	default:
		return record{}, bad
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	var n [3]int64
	for i, w := range words[1:] {
		var err error
		if n[i], err = strconv.ParseInt(w, 10, 64); err != nil || n[i] < 0 {
			return record{}, bad
		}
	}
	if n[0] > most || len(words) == 4 && (n[1] == 0 || r.state == waiting) {
		return record{}, bad
	}
	r.ttl, r.token, r.since = time.Duration(n[0])*time.Millisecond, n[1], n[2]
	return r, nil
}

// tokenOf returns a lease's token and when it was granted.
func tokenOf(r record, stat *zk.Stat) (token, since int64) {
	switch {
	case r.state == waiting:
		return 0, 0
	case r.token != 0:
		return r.token, r.since
	}
	return stat.Mzxid, stat.Mtime
}

// remaining returns how long a lease still lasts. It compares the servers' time of the last
// write with this process's wall clock, which may differ.
func remaining(r record, stat *zk.Stat, now time.Time) time.Duration {
	return max(0, min(r.ttl, time.UnixMilli(stat.Mtime).Add(r.ttl).Sub(now)))
}
