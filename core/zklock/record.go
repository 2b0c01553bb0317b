package zklock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// state is what a member is at.
type state uint8

const (
	waiting state = iota
	granted
	lowered // granted, and a writer that lets readers in
)

var stateNames = [...]string{waiting: "waiting", granted: "granted", lowered: "lowered"}

// record is what a member's node says: words, of which the last two are there once
// the lease has been renewed.
//
//	waiting <milliseconds>
//	granted <milliseconds> [<token> <granted at, in milliseconds since 1970>]
//	lowered <milliseconds> [<token> <granted at>]
type record struct {
	state state
	ttl   time.Duration // the member lasts that long after this was written
	token int64         // 0: what was written is the grant itself
	since int64
}

func (r record) String() string {
	// Rounded up: the store must not be the first to see the end.
	ms := (r.ttl + time.Millisecond - 1) / time.Millisecond
	s := stateNames[r.state] + " " + strconv.FormatInt(int64(ms), 10)
	if r.token != 0 {
		s += fmt.Sprintf(" %d %d", r.token, r.since)
	}
	return s
}

// parseRecord reads a record. What it does not know is an error, so that nothing is
// deleted that another version wrote.
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
