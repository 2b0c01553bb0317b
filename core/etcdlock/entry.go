package etcdlock

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// entry is a place as it is read from a key's queue. It stays there while its owner holds the key.
type entry struct {
	place
	name   string
	lease  clientv3.LeaseID
	create int64 // the revision of its creation, which orders the queue
	mod    int64 // the revision of its last write
}

// place is the value that an owner writes.
type place struct {
	mode  driver.Mode
	limit int
	ttl   time.Duration // in milliseconds, rounded up
	stage stage
	token int64     // 0: the revision of this write
	since time.Time // of the grant, by the owner's clock; in microseconds
}

// stage is what an owner does with its place.
type stage byte

const (
	waiting stage = 'w'
	holding stage = 'h'
	kept    stage = 'k' // released, and free for nobody until Ending.Keep is over
)

var errMalformed = errors.New("a value that is not of this protocol")

var modeLetters = [...]string{driver.Exclusive: "e", driver.Shared: "s", driver.Semaphore: "p"}

// String returns the place as it is stored: six fields, separated by spaces.
func (p place) String() string {
	ms := (p.ttl + time.Millisecond - 1) / time.Millisecond
	since := int64(0)
	if !p.since.IsZero() {
		since = p.since.UnixMicro()
	}
	b := append(make([]byte, 0, 64), modeLetters[p.mode]...)
	b = strconv.AppendInt(append(b, ' '), int64(p.limit), 10)
	b = strconv.AppendInt(append(b, ' '), int64(ms), 10)
	b = append(b, ' ', byte(p.stage), ' ')
	b = strconv.AppendInt(b, p.token, 10)
	b = strconv.AppendInt(append(b, ' '), since, 10)
	return string(b)
}

// parsePlace reads what place.String wrote.
func parsePlace(text string) (place, error) {
	f := strings.Split(text, " ")
	if len(f) != 6 || len(f[3]) != 1 {
		return place{}, errMalformed
	}
	p := place{stage: stage(f[3][0])}
	known := false
	for m, letter := range modeLetters {
		if f[0] == letter {
			p.mode, known = driver.Mode(m), true
		}
	}
	limit, e1 := strconv.Atoi(f[1])
	ms, e2 := strconv.ParseInt(f[2], 10, 64)
	token, e3 := strconv.ParseInt(f[4], 10, 64)
	since, e4 := strconv.ParseInt(f[5], 10, 64)
	if err := errors.Join(e1, e2, e3, e4); err != nil || !known {
		return place{}, errMalformed
	}
	p.limit, p.ttl, p.token = limit, time.Duration(ms)*time.Millisecond, token
	if since != 0 {
		p.since = time.UnixMicro(since)
	}
	switch {
	case p.stage != waiting && p.stage != holding && p.stage != kept,
		(p.mode == driver.Semaphore) != (limit > 0) || limit < 0,
		ms < 0 || ms > math.MaxInt64/int64(time.Millisecond),
		token < 0 || since < 0,
		p.String() != text:
		return place{}, errMalformed
	}
	return p, nil
}

func parseEntry(kv *mvccpb.KeyValue) (entry, error) {
	p, err := parsePlace(string(kv.Value))
	if err != nil {
		return entry{}, &driver.PermanentError{Err: fmt.Errorf("etcd: read the queue of a key: %w", err)}
	}
	if p.stage != waiting && p.token == 0 {
		p.token = kv.ModRevision
	}
	return entry{
		place: p, name: string(kv.Key), lease: clientv3.LeaseID(kv.Lease),
		create: kv.CreateRevision, mod: kv.ModRevision,
	}, nil
}

// capacity returns how many may hold the key together with this place, itself included; 0 is
// any number.
func (p *place) capacity() int {
	switch p.mode {
	case driver.Exclusive:
		return 1
	case driver.Semaphore:
		return p.limit
	default:
		return 0
	}
}
