package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var promptAllChecks = []check{
	{"RequestsBegunTogetherHaveResultsOfTheirOwn", needs(promptingAll), begunTogether},
}

// promptingAll is the need of sessions that are a driver.PromptAll.
var promptingAll = need{"Session that is a driver.PromptAll", false, func(f *fixture) bool { return promptsAll(f.h.Driver) }}

func promptsAll(d driver.Driver) bool {
	_, ok := sessionOf(d).(driver.PromptAll)
	return ok
}

// beginAll calls BeginAll.
func (p *process) beginAll(rs []driver.Request) []driver.Begun {
	p.f.t.Helper()
	return within(p.f, driver.Promptness+Slack, "BeginAll", func() []driver.Begun {
		begun := make([]driver.Begun, len(rs))
		p.s.(driver.PromptAll).BeginAll(rs, time.Now(), begun)
		return begun
	})
}

// requests are for n keys of which none is used.
func (f *fixture) requests(n int) (rs []driver.Request) {
	for i := range n {
		rs = append(rs, f.request(fmt.Sprint(f.key, ":", i), f.long()))
	}
	return rs
}

func begunTogether(f *fixture) {
	p, q := f.process(), f.process()
	for round := range 3 { // the store is known for quick answers only after the first
		rs := f.requests(5)
		taken := round + 1
		held := q.take(rs[taken].Key, f.long())
		before := time.Now()
		var leases []*lease
		for i, b := range p.beginAll(rs) {
			if !b.Done {
				l, err := p.acquire(f.patient(), rs[i])
				if b.Err = err; err == nil {
					b.Grant = l.Grant
				}
			}
			switch {
			case i == taken && !errors.As(b.Err, new(*driver.HeldError)):
				f.t.Fatalf("the request for the key that is held comes to %v", b.Err)
			case i == taken:
			case b.Err != nil:
				f.t.Fatalf("the request for key %d, which is free: %v", i, b.Err)
			case b.Grant.ID != rs[i].ID:
				f.t.Fatalf("the request for key %d is granted another ID", i)
			default:
				l := &lease{Grant: b.Grant, p: p, ttl: rs[i].TTL, sent: before, back: time.Now()}
				l.holds()
				leases = append(leases, l)
			}
		}
		held.holds()
		held.drop()
		for _, l := range leases {
			l.drop()
		}
		for _, r := range rs {
			q.take(r.Key, f.long()).drop()
		}
	}
}
