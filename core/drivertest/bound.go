package drivertest

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/driver"
)

var boundChecks = []check{
	{"FullQueueRefusesAtOnce", needs(bounding), fullQueueRefuses},
	{"HoldersAreNotInTheQueue", needs(bounding, sharing), holdersAreNotInTheQueue},
	{"FullQueueKeepsWhoIsInIt", needs(bounding, dropping), fullQueueKeepsItsOwn},
}

// bounding is the need of a store that bounds its queue.
var bounding = need{"Capabilities.Bounds", false, func(f *fixture) bool { return f.caps.Bounds }}

// bounded asks for the key behind so many others at most.
func (f *fixture) bounded(most int) driver.Request {
	r := f.waiting(f.key, f.long())
	r.MaxWaiting = most
	return r
}

// finds fails the check unless the queue is full, or has room, for one more who asks behind so many at most.
func (p *process) finds(full bool, most int) {
	p.f.t.Helper()
	r := p.f.bounded(most)
	queued := p.sink.waiting(r.ID)
	w := p.start(context.Background(), r)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-queued:
			w.cancel()
		case <-over:
		}
	}()
	_, err := w.ended(patience, "a request that has a MaxWaiting")
	var held *driver.HeldError
	switch is := errors.As(err, &held); {
	case err == nil:
		p.f.t.Fatal("success while another owner holds the key")
	case is && !held.Full:
		p.f.t.Fatal("the HeldError of a request that would wait is not Full")
	case is && !full:
		p.f.t.Fatalf("a request that may wait behind %d others was refused: %v", most, err)
	case !is && full:
		p.f.t.Fatalf("a request that may not wait behind %d others was let wait, or failed: %v", most, err)
	}
}

func fullQueueRefuses(f *fixture) {
	a, b, c := f.process(), f.process(), f.peer()
	l, err := a.acquire(f.patient(), f.bounded(1)) // nobody waits
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	first := b.enqueue(f.bounded(1))
	c.finds(true, 1)
	b.finds(true, 1) // also of a process that has a place
	second := c.enqueue(f.bounded(2))
	b.finds(true, 2)
	third := b.queue(f.key) // without a bound
	if n := f.state(f.key).Waiting; n != 3 {
		f.t.Errorf("%d wait after requests that were refused, want 3", n)
	}
	second.cancel()
	if _, err := second.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
	}
	f.eventually(f.cleanUp(), "a cancelled wait leaving the queue", func() bool { return f.state(f.key).Waiting == 2 })
	second = c.enqueue(f.bounded(3))
	l.drop()
	for _, w := range []*waiter{first, third, second} {
		w.granted(f.handOver(), "the grant of a waiter whose turn it is").drop()
	}
	f.takeSoon(a)
}

// holdersAreNotInTheQueue has a writer that lets readers in, some of whom have waited for that, and then
// writers who wait.
func holdersAreNotInTheQueue(f *fixture) {
	a, b := f.process(), f.process()
	all := []*lease{a.takeAs(write)}
	w := b.queueAs(read)
	all[0].lowers()
	all = append(all, w.granted(f.handOver(), "the grant to a reader after the writer's lease was lowered"))
	for range 3 {
		all = append(all, b.takeAs(read))
	}
	b.finds(false, 1)
	f.eventually(f.cleanUp(), "a cancelled wait leaving the queue", func() bool { return f.state(f.key).Waiting == 0 })
	first := b.enqueue(f.bounded(1))
	a.finds(true, 1)
	second := a.enqueue(f.bounded(2))
	b.finds(true, 2)
	for _, l := range all {
		l.drop()
	}
	for _, w := range []*waiter{first, second} {
		w.granted(f.handOver(), "the grant of a waiter whose turn it is").drop()
	}
}

// fullQueueKeepsItsOwn loses the reply to the request that takes the last place.
func fullQueueKeepsItsOwn(f *fixture) {
	a, b, c := f.process(), f.process(), f.peer()
	_ = b.ping() // so that connections exist
	l := a.take(f.key, f.long())
	dropped := f.h.DropReply(OpAcquire)
	w := b.start(f.patient(), f.bounded(1))
	f.eventually(promptness, "the loss of the reply to an acquire, by the harness", dropped)
	f.eventually(f.handOver(), "one place in the queue after a lost reply", func() bool { return f.state(f.key).Waiting == 1 })
	c.finds(true, 1)
	l.drop()
	w.granted(f.handOver(), "the grant of a waiter whose first reply was lost").drop()
	f.takeSoon(a)
}
