package protocol_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

// call is one run of a script on one key.
type call struct {
	script protocol.Script
	key    string
	args   []any
}

func (c call) String() string {
	words, err := reference.Words(c.args)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %q %q", c.script.Name, c.key, words)
}

// step is what the server runs at one moment.
type step struct {
	at    time.Time
	flush bool // before the call
	call
}

func (s step) String() string {
	text := fmt.Sprint(s.at.UnixMicro())
	if s.flush {
		text += " flushed,"
	}
	return text + " " + s.call.String()
}

// profile is a kind of random history.
type profile struct {
	name    string
	owners  int           // how many to choose from when none in particular is meant
	fresh   float64       // share of requests by owners never seen before
	jump    time.Duration // the longest usual time between two steps
	leap    float64       // share of steps some seconds after the one before
	back    float64       // share of steps before the one before
	endings float64       // share of steps that end something
	lengths []int         // ms
	modes   []mode        // to choose from; none: all are exclusive
	most    []int         // places before a new one, to choose from; none: any number
}

// mode is what an owner asks for.
type mode struct {
	driver.Mode
	limit int
}

var (
	readWrite = []mode{{driver.Exclusive, 0}, {driver.Shared, 0}, {driver.Shared, 0}, {driver.Shared, 0}}
	permits   = []mode{{driver.Semaphore, 3}, {driver.Semaphore, 3}, {driver.Semaphore, 3}, {driver.Semaphore, 2}}
	mixed     = []mode{{driver.Exclusive, 0}, {driver.Shared, 0}, {driver.Semaphore, 4}, {driver.Semaphore, 1}, {driver.Semaphore, 2}}
)

var profiles = []profile{
	{name: "few", owners: 8, fresh: 0.1, jump: 300 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.25, lengths: []int{10, 300, 3000, 5000, 30000}},
	{name: "fresh", owners: 12, fresh: 0.5, jump: 200 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.3, lengths: []int{10, 300, 3000, 5000, 30000}},
	{name: "crowd", owners: 200, fresh: 0.9, jump: 10 * time.Millisecond, leap: 0.008, back: 0.003, endings: 0.12, lengths: []int{3000}},
	{name: "readers and writers", owners: 12, fresh: 0.5, jump: 200 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.3, lengths: []int{10, 300, 3000, 5000, 30000}, modes: readWrite},
	{name: "permits", owners: 12, fresh: 0.5, jump: 200 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.2, lengths: []int{10, 300, 3000, 5000, 30000}, modes: permits},
	{name: "mixed", owners: 12, fresh: 0.5, jump: 100 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.25, lengths: []int{10, 300, 3000, 5000, 30000}, modes: mixed},
	{name: "bounded", owners: 12, fresh: 0.7, jump: 200 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.1, lengths: []int{10, 300, 3000, 5000, 30000}, modes: mixed, most: []int{0, 1, 2, 3, 5}},
	{name: "bounded crowd", owners: 200, fresh: 0.9, jump: 10 * time.Millisecond, leap: 0.01, back: 0.003, endings: 0.08, lengths: []int{3000, 3000, 3000, 300, 30000}, most: []int{5, 60, 70, 100}},
	{name: "crowd of all kinds", owners: 200, fresh: 0.9, jump: 10 * time.Millisecond, leap: 0.008, back: 0.003, endings: 0.12, lengths: []int{3000}, modes: mixed},
}

// history makes the steps of one history, each in view of what came before.
type history struct {
	profile
	*rand.Rand
	at   time.Time
	keys []string // most happens to the first
	last int      // owner that is new
}

func (h *history) ms(ms ...int) time.Duration {
	return time.Duration(ms[h.IntN(len(ms))]) * time.Millisecond
}

func (h *history) upTo(d time.Duration) time.Duration {
	return time.Duration(h.Int64N(int64(d))).Truncate(time.Microsecond)
}

// owner chooses one: who holds, who waits, or any of the latest.
func (h *history) owner(st reference.State) driver.Owner {
	var o driver.Owner
	switch x := h.Float64(); {
	case x < 0.3 && len(st.Holders) > 0:
		copy(o[:], st.Holders[h.IntN(len(st.Holders))].Owner)
	case x < 0.6 && len(st.Queue) > 0:
		copy(o[:], st.Queue[h.IntN(len(st.Queue))].Owner)
	default:
		o = owner(max(0, h.last-h.IntN(h.owners)))
	}
	return o
}

func (h *history) newOwner(st reference.State) driver.Owner {
	if h.Float64() < h.fresh {
		h.last++
		return owner(h.last)
	}
	return h.owner(st)
}

// trace returns that of a request, which two in three do not have.
func (h *history) trace() *driver.Trace {
	if h.IntN(3) > 0 {
		return nil
	}
	t := &driver.Trace{Flags: 1}
	binary.BigEndian.PutUint64(t.TraceID[:], h.Uint64())
	binary.BigEndian.PutUint64(t.SpanID[:], h.Uint64())
	return t
}

// next goes on to the next moment, and says what else precedes its call.
func (h *history) next() step {
	switch x := h.Float64(); {
	case x < h.back:
		h.at = h.at.Add(-h.upTo(8 * second))
	case x < h.back+h.leap:
		h.at = h.at.Add(h.upTo(8 * second))
	case x < 0.85:
		h.at = h.at.Add(h.upTo(h.jump))
	}
	return step{at: h.at, flush: h.Float64() < 0.002}
}

// token returns one that may have been drawn: about now, or about the key's.
func (h *history) token(st reference.State) int64 {
	return max(1, h.at.UnixMilli()*1000, h.Int64N(2)*st.Token) + h.Int64N(3)
}

func (h *history) key() string {
	if h.Float64() < 0.8 {
		return h.keys[0]
	}
	return h.keys[h.IntN(len(h.keys))]
}

// call chooses what is done to a key in this state.
func (h *history) call(key string, st reference.State) call {
	s := call{key: key}
	length := h.ms(h.lengths...)
	placeTTL := protocol.PlaceTTL(length)
	m := mode{}
	if len(h.modes) > 0 {
		m = h.modes[h.IntN(len(h.modes))]
	}
	most := 0
	if len(h.most) > 0 {
		most = h.most[h.IntN(len(h.most))]
	}
	channel := func(o driver.Owner) string { return "channel:" + strconv.Itoa(int(o[15])%3) }
	switch x := h.Float64(); {
	case x < h.endings:
		s.script = protocol.End
		a := protocol.EndArgs{Owner: h.owner(st), Bury: h.IntN(3) == 0, Keep: h.ms(0, 0, 0, 100, 3000)}
		if h.IntN(3) == 0 {
			next := h.newOwner(st)
			a.Next = &protocol.Next{Owner: next, Channel: channel(next), Length: length, PlaceTTL: placeTTL, Mode: m.Mode, Limit: m.limit, Trace: h.trace()}
		}
		s.args = a.Args()
	case x < h.endings+0.1:
		s.script, s.args = protocol.Renew, protocol.RenewArgs{Owner: h.owner(st), Token: h.token(st), TTL: length, Share: h.IntN(8) == 0}.Args()
	case x < h.endings+0.12:
		s.script = protocol.Inspect
	case x < h.endings+0.125:
		upTo := st.Token
		if len(st.Holders) > 0 {
			upTo = max(upTo, st.Holders[h.IntN(len(st.Holders))].Token)
		}
		s.script, s.args = protocol.Oust, protocol.OustArgs{UpTo: upTo}.Args()
	case m.Mode == driver.Exclusive && h.IntN(map[bool]int{true: 2, false: 10}[len(st.Holders) == 0]) == 0:
		o := h.newOwner(st)
		s.script, s.args = protocol.Take, protocol.TakeArgs{Owner: o, Channel: channel(o), Length: length, Trace: h.trace()}.Args()
	default:
		o := h.newOwner(st)
		s.script = protocol.Acquire
		s.args = protocol.AcquireArgs{
			Owner: o, Channel: channel(o), Length: length, PlaceTTL: placeTTL,
			Create: h.IntN(4) > 0, Wait: h.IntN(6) > 0, MaxWaiting: most, Mode: m.Mode, Limit: m.limit, Trace: h.trace(),
		}.Args()
	}
	return s
}
