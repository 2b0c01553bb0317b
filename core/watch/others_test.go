package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/observe"
)

func TestEnginesThatAreShownAreBounded(t *testing.T) {
	h, now := watching(), time.Now()
	for i := range 10 * MaxProcesses {
		p := example(now)
		p.Identity = fmt.Sprint("hostile-", i)
		h.take(observe.Instance{1, byte(i), byte(i >> 8)}, p, now)
	}
	if n := len(h.others); n != MaxProcesses-1 {
		t.Errorf("%d engines are shown", n)
	}
	h.others.age(now.Add(time.Minute)) // all are silent
	h.take(observe.Instance{9}, example(now), now.Add(time.Minute))
	if h.others[observe.Instance{9}] == nil || len(h.others) != MaxProcesses-1 {
		t.Error("one that is there does not take the place of one that is gone")
	}
}

// Two megabytes of reports tell of half a million callers.
func TestCallersOfAKeyThatAreShownAreBoundedAndCountedInFull(t *testing.T) {
	r := observe.NewRecorder(&observe.Origin{}, 0)
	now := time.Now()
	var used usages
	of := func(self bool, at time.Duration) usage {
		u := usage{holding: 20, waiting: 40}
		for i := range MaxCallers {
			since := now.Add(-at - time.Duration(i))
			u.holders = append(u.holders, Holder{Self: self, Since: since})
			u.waiters = append(u.waiters, Waiter{Self: self, Since: since})
		}
		return u
	}
	used = append(used, of(true, time.Second)) // the latest, and shown all the same
	for i := range MaxProcesses - 1 {
		used = append(used, of(false, time.Duration(2+(i*37)%MaxProcesses)*time.Second)) // in no order
	}
	k := keyOf(r, "k", used, now)
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

// watching is somebody who watches a hub without an engine.
func watching() *watchers {
	h := &observe.Hub{Self: &observe.Origin{Instance: observe.Instance{0xff}}}
	h.Rec = observe.NewRecorder(h.Self, 0)
	return &watchers{hub: h, watching: map[*Watcher]struct{}{{}: {}}}
}

func TestEngineIsBackAsSoonAsItReportsAfterAForgedGoodbye(t *testing.T) {
	h, now := watching(), time.Now()
	p := example(now)
	h.take(observe.Instance{1}, p, now)
	h.Reported(observe.Message(observe.KindClosed, observe.Instance{1}))
	if o := h.others[observe.Instance{1}]; !o.shown.Closed || len(o.keys) > 0 {
		t.Fatalf("after a goodbye: %+v", o)
	}
	h.take(observe.Instance{1}, p, now) // which came before the goodbye
	if !h.others[observe.Instance{1}].shown.Closed {
		t.Error("a report that had come before undoes the goodbye")
	}
	p.Number++
	h.take(observe.Instance{1}, p, now)
	if o := h.others[observe.Instance{1}]; o.shown.Closed || o.gone || len(o.keys) != 1 {
		t.Errorf("after its next report: %+v", o)
	}
}

func TestForgedNumberOfAReportDoesNotSilenceTheEngine(t *testing.T) {
	for _, forged := range []uint64{8, 10, 11, 1 << 40, 1<<64 - 1} {
		h, now := watching(), time.Now()
		p := example(now)
		h.take(observe.Instance{1}, p, now)
		lie := example(now)
		lie.Number, lie.Held = forged, 99
		h.take(observe.Instance{1}, lie, now)
		for range lateReports + 1 {
			p.Number++
			h.take(observe.Instance{1}, p, now)
		}
		if o := h.others[observe.Instance{1}]; o.shown.Held == 99 {
			t.Errorf("a forged number of %d silences the engine", forged)
		}
	}
}

func TestViewSaysThatThereAreMoreEnginesThanAreShown(t *testing.T) {
	h, now := watching(), time.Now()
	h.hub.Gossip = silence{}
	for i := range MaxProcesses - 1 {
		h.take(observe.Instance{1, byte(i)}, example(now), now)
	}
	if says := h.alone(now); says != "" {
		t.Errorf("of as many as there may be: %s", says)
	}
	h.take(observe.Instance{2}, example(now), now)
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
	h, now := watching(), time.Now()
	for range 2 {
		h.take(observe.Instance{1}, example(now), now)
	}
	if k := keyOf(h.hub.Rec, "stock:1", nil, now); k.Counts.Taken != 3 || len(k.Events) != 1 {
		t.Errorf("%+v", k)
	}
}

func TestPoliciesThatAreShownAreBounded(t *testing.T) {
	r := observe.NewRecorder(&observe.Origin{}, 0)
	for i := range 5_000 {
		r.Note(manager.Event{Kind: manager.EventTaken, Key: "k", Terms: &manager.Terms{Name: fmt.Sprint("policy:", i)}})
		r.Note(manager.Event{Kind: manager.EventTaken, Key: "k", Terms: &manager.Terms{Name: "busy"}})
	}
	if all := policiesOf(&observe.Hub{Config: observe.Config{Overridden: func(string) observe.Fields { return 0 }}}, r, nil, time.Now()); len(all) > MaxPolicies || all[0].Name != "busy" {
		t.Errorf("%d policies, first %q", len(all), all[0].Name)
	}
}

func TestSettingsThatAreShownAreBounded(t *testing.T) {
	h, now := watching(), time.Now()
	for i := range MaxProcesses - 1 {
		for n := range uint64(5) { // each names other policies every time
			p := example(now)
			p.Identity, p.Number, p.Policies = fmt.Sprint("hostile-", i), n+1, nil
			for j := range 2 * observe.MaxNames {
				told := observe.Told{Name: fmt.Sprint("p", n, "-", j), Settings: observe.Settings{TTL: time.Second, Limit: i}}
				p.Policies = append(p.Policies, told, observe.Told{Name: "stock", Settings: told.Settings})
			}
			h.take(observe.Instance{1, byte(i)}, p, now)
		}
	}
	for _, o := range h.others {
		if n := len(o.policies); n > 3*observe.MaxNames {
			t.Fatalf("the settings of %d policies are kept of one engine", n)
		}
	}
	if all := settingsOf("stock", observe.Settings{TTL: time.Minute}, h.others); len(all) != MaxSettings || !all[0].Self {
		t.Errorf("%d settings are shown: %+v", len(all), all)
	}
}
