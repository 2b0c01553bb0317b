package queuetest

import (
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/decorator/queue"
)

// parkedID is the first item of the only parked key.
func (h handle) parkedID() string {
	h.t.Helper()
	all, err := h.q.Parked(h.t.Context(), 10)
	if err != nil || len(all) != 1 {
		h.t.Fatalf("parked are %+v, %v; want one key", all, err)
	}
	return all[0].ID
}

func (h handle) resume(id string, how queue.Resumption) {
	h.t.Helper()
	if err := h.q.Resume(h.t.Context(), id, how); err != nil {
		h.t.Fatalf("%v: %v", how, err)
	}
}

// die has the first item die by its last failure, after its first run.
func (h handle) die(token int64, id string) queue.Step {
	h.t.Helper()
	return h.end(token, ending(h.begin(token, id, 1), queue.Retry))
}

var deathChecks = []check{
	{"LastFailureIsDeath", nil, func(f *fixture) {
		h, p := f.open(attempts(2)), f.peer(attempts(2))
		id := h.append("1").ID
		h.append("2")
		h.end(1, ending(h.begin(1, "1", 1), queue.Retry))
		e := ending(h.begin(2, "1", 2), queue.Retry)
		e.Next = true
		s := h.end(2, e)
		if s.Died != 1 || s.Left != 1 {
			f.t.Errorf("%+v after the last attempt; want 1 that died and 1 left", s)
		}
		h.is(s, "2", 1)
		p.mustBe(id, queue.GivenUp)
	}},
	{"DeathIsForTheFunctionToSay", nil, func(f *fixture) {
		h := f.open()
		id := h.append("1").ID
		if s := h.end(1, ending(h.begin(1, "1", 1), queue.Dead)); s.Died != 1 || s.Left != 0 {
			f.t.Errorf("%+v; want 1 that died", s)
		}
		h.mustBe(id, queue.GivenUp)
	}},
	{"CrashLoopEnds", nil, func(f *fixture) {
		h, p := f.open(attempts(3)), f.peer(attempts(3))
		id := h.append("1").ID
		h.append("2")
		for n := range 3 {
			h.begin(int64(n+1), "1", n+1) // and dies
		}
		s := p.step(4)
		if s.Died != 1 {
			f.t.Errorf("%d have died; want 1", s.Died)
		}
		p.is(s, "2", 1)
		h.mustBe(id, queue.GivenUp)
	}},
	{"HoldParksTheKey", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Hold)), f.peer(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		behind := h.append("2").ID
		other := h.on(f.key + "2")
		other.append("1")
		if s := h.die(1, "1"); !s.Parked || s.Died != 1 || s.Left != 2 {
			f.t.Errorf("%+v; want the key parked, with 2 left", s)
		}
		if s := p.mustBe(id, queue.GivenUp); !s.Parked {
			f.t.Errorf("%+v; want it parked", s)
		}
		if s := p.mustBe(behind, queue.Waiting); s.Ahead != 1 {
			f.t.Errorf("%d are ahead; want 1", s.Ahead)
		}
		if s := p.none(p.step(2)); !s.Parked {
			f.t.Errorf("%+v; want the key parked", s)
		}
		p.append("3")
		p.mustClaim("worker", f.key+"2")
		all, err := p.q.Parked(f.t.Context(), 10)
		if err != nil || len(all) != 1 || all[0].ID != id || all[0].Key != f.key || all[0].Left != 3 || all[0].Since.IsZero() {
			f.t.Errorf("parked are %+v, %v", all, err)
		}
		if all, err := p.q.Parked(f.t.Context(), 0); err != nil || len(all) != 0 {
			f.t.Errorf("parked are %+v, %v; want none of none", all, err)
		}
		other.begin(1, "1", 1)
	}},
	{"CrashLoopParksTheKey", nil, func(f *fixture) {
		h := f.open(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		h.begin(1, "1", 1) // and dies
		if s := h.none(h.step(2)); !s.Parked || s.Died != 1 {
			f.t.Errorf("%+v; want the key parked", s)
		}
		h.mustClaim("worker")
		h.resume(id, queue.Repeat)
		h.mustClaim("worker", f.key)
		h.begin(3, "1", 1)
	}},
	{"OperatorLetsTheKeyGoOn", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Hold)), f.peer(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		h.append("2")
		h.die(1, "1")
		p.resume(id, queue.GoOn)
		if s := h.mustBe(id, queue.GivenUp); s.Parked {
			f.t.Errorf("%+v; want it parked no more", s)
		}
		h.mustClaim("worker", f.key)
		h.done(2, h.begin(2, "2", 1))
		if p := h.append("1"); p.ID != id || h.none(h.step(3)).Left != 0 {
			f.t.Error("an item that is dead was appended again")
		}
	}},
	{"OperatorDropsTheItem", nil, func(f *fixture) {
		h := f.open(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		h.append("2")
		h.die(1, "1")
		h.resume(id, queue.Drop)
		h.mustBeUnknown(id)
		h.mustClaim("worker", f.key)
		h.done(2, h.begin(2, "2", 1))
		h.append("1")
		h.begin(3, "1", 1)
	}},
	{"OperatorRepeatsTheItem", nil, func(f *fixture) {
		h := f.open(attempts(2), onDead(queue.Hold))
		id := h.append("1").ID
		h.append("2")
		h.end(1, ending(h.begin(1, "1", 1), queue.Dead))
		h.resume(id, queue.Repeat)
		if s := h.mustBe(id, queue.Waiting); s.Attempts != 0 {
			f.t.Errorf("%d attempts are counted; want none", s.Attempts)
		}
		h.mustClaim("worker", f.key)
		h.end(2, ending(h.begin(2, "1", 1), queue.Retry))
		h.done(3, h.begin(3, "1", 2))
		h.begin(4, "2", 1)
	}},
	{"OnlyAParkedKeyIsResumed", nil, func(f *fixture) {
		h := f.open(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		behind := h.append("2").ID
		refused := func(id string, want error) {
			f.t.Helper()
			for _, how := range []queue.Resumption{queue.GoOn, queue.Drop, queue.Repeat} {
				if err := h.q.Resume(f.t.Context(), id, how); !errors.Is(err, want) {
					f.t.Errorf("%v: %v; want %v", how, err, want)
				}
			}
		}
		refused(id, queue.ErrNotParked)
		h.die(1, "1")
		refused(behind, queue.ErrNotParked)
		refused(id+"?", queue.ErrUnknown)
		refused("", queue.ErrUnknown)
		h.resume(id, queue.GoOn)
		refused(id, queue.ErrNotParked)
		h.begin(2, "2", 1)
		refused(behind, queue.ErrNotParked)
	}},
	{"CascadeEndsWhatIsBehind", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Cascade)), f.peer(attempts(1), onDead(queue.Cascade))
		ids := []string{h.append("1").ID, h.append("2").ID, h.append("3").ID}
		h.on(f.key + "2").append("1")
		if s := h.die(1, "1"); s.Died != 3 || s.Left != 0 {
			f.t.Errorf("%+v; want 3 that died", s)
		}
		for _, id := range ids {
			p.mustBe(id, queue.GivenUp)
		}
		p.mustClaim("worker", f.key+"2")
		h.append("4")
		h.begin(2, "4", 1)
	}},
	{"CascadeOfManyIsOneDeathThatAnyWorkerEnds", nil, func(f *fixture) {
		const many = 1100 // more than a store may remove in one step
		r := []func(*queue.Rules){attempts(1), onDead(queue.Cascade), maxLength(2 * many), kept(long, 3*many)}
		h, p := f.open(r...), f.peer(r...)
		ids := make([]string, many)
		for n := range ids {
			ids[n] = h.append(fmt.Sprint(n)).ID
		}
		if s := h.die(1, "0"); s.Died != many || s.Left != 0 {
			f.t.Errorf("%+v; want %d that died", s, many) // and this worker dies
		}
		p.mustBe(ids[0], queue.GivenUp)
		p.mustBe(ids[1], queue.GivenUp)
		p.mustBe(ids[many-1], queue.GivenUp)
		if again := p.append(fmt.Sprint(many - 1)); again.ID != ids[many-1] || again.Ahead != 0 {
			f.t.Errorf("a dead item's place is %+v", again)
		}
		if later := p.append("later"); later.Ahead != 0 {
			f.t.Errorf("%d are ahead of the first that is alive", later.Ahead)
		}
		if s, err := p.q.Stats(f.t.Context()); err != nil || s.Length != 1 {
			f.t.Errorf("%+v, %v; want 1 item", s, err)
		}
		var s queue.Step
		for token := int64(2); s.Item == nil; token++ {
			if token > many {
				f.t.Fatal("what came after the death is never begun")
			}
			p.mustClaim("worker", f.key)
			if s = p.step(token); s.Left != 1 || s.Died != 0 || s.In != 0 {
				f.t.Fatalf("%+v; want the item that is left, or that the key is due", s)
			}
			if s.Item != nil {
				p.is(s, "later", 1)
				p.done(token, *s.Item)
			}
		}
		p.mustClaim("worker")
		for _, id := range ids {
			p.mustBe(id, queue.GivenUp)
		}
	}},
}
