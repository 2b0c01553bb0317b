package check_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl = 500 * time.Millisecond
	key = "k"
)

// rules are those of the tests: T and E are 500 ms, a waiter sleeps for 1 s at most.
var rules = check.Rules{
	TTL: ttl, PlaceTTL: ttl, Wake: time.Second, Backoff: time.Second, Late: 50 * time.Millisecond,
	Slack: 100 * time.Millisecond, Search: time.Minute, Warm: 1, HandOffs: 1024,
}

// book is a history in the making. Its times are in ms; a lease is good for a TTL.
type book struct{ events []history.Event }

func at(ms float64) int64 { return int64(ms * 1e6) }

func (b *book) add(e history.Event) { b.events = append(b.events, e) }

// token is that of the nth caller on a grant.
func token(grant, n int64) int64 { return grant*rules.HandOffs + n }

// acquired is an acquisition by the only client of a process.
func (b *book) acquired(process int, token int64, call, ret float64) {
	b.add(history.Event{
		Process: process, Client: 1, Key: key, Op: history.Acquire, Token: token,
		Call: at(call), Return: at(ret), Limit: at(ret + 1), Deadline: at(ret) + int64(ttl),
	})
}

// waited is an acquisition that got nothing.
func (b *book) waited(process int, call, ret float64) {
	b.add(history.Event{
		Process: process, Client: 2, Key: key, Op: history.Acquire, Call: at(call), Return: at(ret), Limit: at(ret), Error: "lock wait timed out",
	})
}

func (b *book) released(process int, token int64, call, ret float64) {
	e := history.Event{Process: process, Client: 1, Key: key, Op: history.Release, Token: token, Call: at(call)}
	b.add(e)
	e.Op, e.Return = history.Released, at(ret)
	b.add(e)
}

// held is a whole critical section, with its increment from that value.
func (b *book) held(process int, token int64, from, to float64, value int64) {
	b.acquired(process, token, from-1, from)
	b.guarded(history.Read, process, token, from+0.1, value, "")
	b.guarded(history.Write, process, token, to-0.2, value+1, "")
	b.released(process, token, to, to+0.5)
}

// guarded is what the guard was asked for and answered.
func (b *book) guarded(op history.Op, process int, token int64, ms float64, value int64, err string) {
	b.add(history.Event{
		Process: process, Client: 1, Key: key, Op: op, Token: token, Value: value, Call: at(ms), Return: at(ms) + 1e4, Error: err,
	})
}

func (b *book) lost(process int, token int64, ms, deadline float64) {
	b.add(history.Event{
		Process: process, Client: 1, Key: key, Op: history.Lost, Token: token, Call: at(ms), Return: at(ms), Deadline: at(deadline), Error: "lock lost while held",
	})
}

func (b *book) fault(name string, process int, from, to float64) {
	b.add(history.Event{Process: process, Op: history.Fault, Name: name, Outage: true, Call: at(from), Return: at(to)})
}

// wiped is a fault that makes the store forget.
func (b *book) wiped(from, to float64) {
	b.add(history.Event{Op: history.Fault, Name: "flush", Outage: true, Lossy: true, Call: at(from), Return: at(to)})
}

func (b *book) killed(process int, ms float64) {
	b.add(history.Event{Process: process, Op: history.Kill, Name: "kill", Call: at(ms), Return: at(ms + 1)})
}

func (b *book) late(process int, from, to float64) {
	b.add(history.Event{Process: process, Op: history.Late, Call: at(from), Return: at(to)})
}

// driver is what a driver was asked for and answered.
func (b *book) driver(op history.Op, process int, owner string, grant int64, call, ret, deadline float64, err string) {
	b.add(history.Event{
		Process: process, Key: key, Op: op, Owner: owner, Token: grant, Call: at(call), Return: at(ret), Deadline: at(deadline), Error: err,
	})
}

// idle lasts the history until then.
func (b *book) idle(ms float64) { b.late(9, ms-0.001, ms) }

// kinds are the properties that were found broken.
func kinds(r check.Report) map[string]int {
	out := map[string]int{}
	for _, v := range r.Violations {
		out[v.Property]++
	}
	return out
}
