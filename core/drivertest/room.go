package drivertest

import (
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var roomChecks = []check{
	{"SemaphoreGrantsItsLimit", needs(permitting), semaphoreGrantsItsLimit},
	{"SemaphoreServesItsQueueInOrder", needs(permitting), semaphoreServesInOrder},
	{"PermitsHaveExpiriesOfTheirOwn", needs(permitting), permitsExpireAlone},
	{"SmallestLimitRules", needs(permitting), smallestLimitRules},
	{"ModesMixByTheirRoom", needs(permitting, sharing), modesMix},
	{"KeepTakesOnePermit", needs(permitting, keeping), keepTakesOnePermit},
}

func semaphoreGrantsItsLimit(f *fixture) {
	const limit = 3
	var all []*lease
	for range limit {
		all = append(all, f.process().takeAs(permit(limit)))
	}
	p := f.process()
	p.refusedAs(permit(limit), fmt.Sprintf("beyond %d", limit))
	w := p.queueAs(permit(limit))
	for _, l := range all {
		l.lives()
	}
	w.stillWaits()
	all[1].drop()
	last := w.granted(f.handOver(), "the grant of a permit that was given back")
	if f.caps.Tokens != driver.NoTokens {
		last.rises(all[2].Token, "of a permit that is still held")
	}
	p.refusedAs(permit(limit), fmt.Sprintf("beyond %d", limit))
	for _, l := range []*lease{all[0], all[2], last} {
		l.drop()
	}
	p.takeAs(write).drop()
}

func semaphoreServesInOrder(f *fixture) {
	held := []*lease{f.process().takeAs(permit(2)), f.process().takeAs(permit(2))}
	var queue []*waiter
	for range 4 {
		queue = append(queue, f.process().queueAs(permit(2)))
	}
	for i, w := range queue {
		held[0].drop()
		held = append(held[1:], w.granted(f.handOver(), fmt.Sprintf("the permit for the waiter in place %d, whose turn it is,", i+1)))
		for _, later := range queue[i+1:] {
			later.stillWaits()
		}
	}
	for _, l := range held {
		l.drop()
	}
}

func permitsExpireAlone(f *fixture) {
	a, b := f.process(), f.process()
	r := f.as(permit(2))
	r.TTL = f.short()
	ends := b.brief(r)
	stays := a.takeAs(permit(2))
	r = f.as(permit(2))
	l, err := b.acquire(f.prompt(), r)
	switch {
	case err == nil && time.Now().Before(ends.Deadline):
		f.t.Fatalf("a request as %v was granted beyond 2", permit(2))
	case err == nil: // the machine was too slow to ask in time
		l.drop()
	case !isHeld(err):
		f.t.Fatalf("a request as %v beyond 2 returned %v, not a *HeldError", permit(2), err)
	}
	r = f.as(permit(2))
	r.Wait = true
	w := b.start(f.patient(), r)
	second := w.granted(ends.ttl+f.handOver(), "the grant of a permit whose holder let it expire")
	stays.lives()
	b.refusedAs(permit(2), "beyond 2, after one had expired and was granted anew")
	stays.drop()
	second.drop()
}

func smallestLimitRules(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	first, second := a.takeAs(permit(3)), a.takeAs(permit(3))
	b.refusedAs(permit(2), "beside two")
	first.drop()
	small := b.takeAs(permit(2))
	c.refusedAs(permit(3), "beside one that lets two hold together")
	w := c.queueAs(permit(3))
	w.stillWaits()
	small.drop()
	large := w.granted(f.handOver(), "a permit of three after the one of two had ended")
	third := a.takeAs(permit(3))
	for _, l := range []*lease{second, large, third} {
		l.drop()
	}
}

func modesMix(f *fixture) {
	a, b := f.process(), f.process()
	share, p1 := a.takeAs(read), b.takeAs(permit(2))
	b.refusedAs(read, "beside a permit of two and a share")
	b.refusedAs(permit(3), "beside a permit of two and a share")
	b.refusedAs(write, "beside a permit of two and a share")
	p1.drop()
	second := b.takeAs(read)
	b.refusedAs(permit(2), "of two, beside two shares")
	p3 := b.takeAs(permit(3))
	for _, l := range []*lease{share, second, p3} {
		l.drop()
	}
	l := a.takeAs(write)
	b.refusedAs(permit(8), "beside a writer")
	l.drop()
}

func keepTakesOnePermit(f *fixture) {
	const keep = time.Second
	a, b := f.process(), f.process()
	l, other := a.takeAs(permit(2)), a.takeAs(permit(2))
	w := b.queueAs(permit(2))
	f.keeps(l, w, keep)
	other.drop()
}
