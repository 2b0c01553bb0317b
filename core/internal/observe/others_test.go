package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/queue"
)

func TestRecorderKeepsTheBusiestOfManyKeys(t *testing.T) {
	r := newRecorder(&Origin{}, 0)
	for i := range 5_000 {
		r.Note(queue.Event{Kind: queue.EventTaken, Key: fmt.Sprint("once:", i), Policy: fmt.Sprint("policy:", i)})
		r.Note(queue.Event{Kind: queue.EventTaken, Key: "busy", Policy: "busy"})
	}
	n, busy := 0, int64(0)
	left := r.keys.each(time.Now(), func(name string, rec *record) {
		n++
		if name == "busy" {
			busy = rec.busy(numberOf(time.Now()))
		}
		if cap(rec.events) > 2*Events {
			t.Errorf("%d events are kept", cap(rec.events))
		}
	})
	if n > parts*inPart || busy != 5_000 || left == 0 {
		t.Errorf("%d keys are kept, the busiest with %d events; %d left out", n, busy, left)
	}
	if all := r.busiest(time.Now()); len(all) > MaxPolicies || all[0].Name != "busy" {
		t.Errorf("%d policies, first %q", len(all), all[0].Name)
	}
}

func TestEnginesThatAreShownAreBounded(t *testing.T) {
	h, now := watched(), time.Now()
	for i := range 10 * MaxProcesses {
		p := example(now)
		p.identity = fmt.Sprint("hostile-", i)
		h.take(Instance{1, byte(i), byte(i >> 8)}, p, now)
	}
	if n := len(h.others); n != MaxProcesses-1 {
		t.Errorf("%d engines are shown", n)
	}
	h.others.age(now.Add(time.Minute)) // all are silent
	h.take(Instance{9}, example(now), now.Add(time.Minute))
	if h.others[Instance{9}] == nil || len(h.others) != MaxProcesses-1 {
		t.Error("one that is there does not take the place of one that is gone")
	}
}

func TestOrderOfKeysThatAreAlikeTellsNothingOfTheirNames(t *testing.T) {
	all := make(candidates)
	for i := range 4 * MaxKeys {
		all.of(fmt.Sprintf("pin:%04d", i))
	}
	first, again := all.best(MaxKeys), all.best(MaxKeys)
	rises, low := 0, 0
	for i, c := range first {
		if again[i] != c {
			t.Fatalf("place %d is of %s, then of %s", i, c.name, again[i].name)
		}
		if i > 0 && first[i-1].name < c.name {
			rises++
		}
		if c.name < fmt.Sprintf("pin:%04d", 2*MaxKeys) {
			low++
		}
	}
	// Of a random order half of each, with a deviation of 5 and 7.
	if rises < MaxKeys/2-60 || rises > MaxKeys/2+60 || low < MaxKeys/2-80 || low > MaxKeys/2+80 {
		t.Errorf("of %d keys %d come after one with a smaller name, and %d are from the first half of the names", MaxKeys, rises, low)
	}
}

// Two megabytes of reports tell of half a million callers.
func TestCallersOfAKeyThatAreShownAreBoundedAndCountedInFull(t *testing.T) {
	r := newRecorder(&Origin{}, 0)
	now := time.Now()
	c := candidate{name: "k"}
	of := func(self bool, at time.Duration) usage {
		u := usage{holding: 20, waiting: 40}
		for i := range MaxCallers {
			since := now.Add(-at - time.Duration(i))
			u.holders = append(u.holders, Holder{Self: self, Since: since})
			u.waiters = append(u.waiters, Waiter{Self: self, Since: since})
		}
		return u
	}
	c.use(of(true, time.Second)) // the latest, and shown all the same
	for i := range MaxProcesses - 1 {
		c.use(of(false, time.Duration(2+(i*37)%MaxProcesses)*time.Second)) // in no order
	}
	k := r.key(&c, now)
	if k.Holding != 20*MaxProcesses || k.Waiting != 40*MaxProcesses {
		t.Errorf("counted %d holders and %d waiters", k.Holding, k.Waiting)
	}
	if len(k.Holders) != MaxTogether || len(k.Waiters) != MaxTogether || cap(k.Waiters) > MaxTogether {
		t.Fatalf("%d holders and %d waiters are shown", len(k.Holders), len(k.Waiters))
	}
	own := 0
	for i, w := range k.Waiters {
		if w.Self {
			own++
		} else if age := now.Sub(w.Since); age < time.Duration(MaxProcesses-8)*time.Second {
			t.Errorf("waiter %d came %v ago, and others before", i, age)
		}
		if i > 0 && w.Since.Before(k.Waiters[i-1].Since) {
			t.Errorf("waiter %d came before the one in front", i)
		}
	}
	if own != MaxCallers {
		t.Errorf("%d waiters of this process are shown", own)
	}
}

// watched is a hub that somebody watches, without an engine.
func watched() *Hub {
	h := &Hub{watches: map[*Watch]struct{}{{}: {}}, self: &Origin{Instance: Instance{0xff}}}
	h.rec = newRecorder(h.self, 0)
	return h
}

func TestEngineIsBackAsSoonAsItReportsAfterAForgedGoodbye(t *testing.T) {
	h, now := watched(), time.Now()
	p := example(now)
	h.take(Instance{1}, p, now)
	h.reported(begin(kindClosed, Instance{1}).b)
	if o := h.others[Instance{1}]; !o.closed || len(o.keys) > 0 {
		t.Fatalf("after a goodbye: %+v", o)
	}
	h.take(Instance{1}, p, now) // which came before the goodbye
	if !h.others[Instance{1}].closed {
		t.Error("a report that had come before undoes the goodbye")
	}
	p.number++
	h.take(Instance{1}, p, now)
	if o := h.others[Instance{1}]; o.closed || o.gone || len(o.keys) != 1 {
		t.Errorf("after its next report: %+v", o)
	}
}

func TestForgedNumberOfAReportDoesNotSilenceTheEngine(t *testing.T) {
	for _, forged := range []uint64{8, 10, 11, 1 << 40, 1<<64 - 1} {
		h, now := watched(), time.Now()
		p := example(now)
		h.take(Instance{1}, p, now)
		lie := example(now)
		lie.number, lie.held = forged, 99
		h.take(Instance{1}, lie, now)
		for range lateReports + 1 {
			p.number++
			h.take(Instance{1}, p, now)
		}
		if o := h.others[Instance{1}]; o.held == 99 {
			t.Errorf("a forged number of %d silences the engine", forged)
		}
	}
}

func TestViewSaysThatThereAreMoreEnginesThanAreShown(t *testing.T) {
	h, now := watched(), time.Now()
	h.gossip = silence{}
	for i := range MaxProcesses - 1 {
		h.take(Instance{1, byte(i)}, example(now), now)
	}
	if says := h.alone(now); says != "" {
		t.Errorf("of as many as there may be: %s", says)
	}
	h.take(Instance{2}, example(now), now)
	if says := h.alone(now); !strings.Contains(says, "128") {
		t.Errorf("of one more: %q", says)
	}
	if says := h.alone(now.Add(goneAfter)); says != "" {
		t.Errorf("later: %s", says)
	}
}

// silence is a store that passes nothing on.
type silence struct{ driver.Gossip }

func TestReportThatComesTwiceCountsOnce(t *testing.T) {
	h, now := watched(), time.Now()
	for range 2 {
		h.take(Instance{1}, example(now), now)
	}
	if k := h.rec.key(&candidate{name: "stock:1"}, now); k.Counts.Taken != 3 || len(k.Events) != 1 {
		t.Errorf("%+v", k)
	}
}

func TestBudgetIsThirtyMessagesInAnyMinute(t *testing.T) {
	var s sharing
	var sent []time.Time
	now := time.Now()
	for range int(10 * time.Minute / tick) {
		now = now.Add(tick)
		if s.may(now) {
			sent = append(sent, now)
			s.spend(now)
		}
	}
	for i := range sent {
		if i >= 30 && sent[i].Sub(sent[i-30]) < time.Minute-tick {
			t.Fatalf("31 messages within %v", sent[i].Sub(sent[i-30]))
		}
	}
}
