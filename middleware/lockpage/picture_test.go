package lockpage

import (
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

func TestTimeLineHasABarForEachHold(t *testing.T) {
	now := time.Now()
	at := func(s int, kind core.EventKind, instance string, token int64) core.KeyEvent {
		return core.KeyEvent{At: now.Add(time.Duration(s) * time.Second), Kind: kind, Identity: "pod-" + instance, Instance: instance, Token: token}
	}
	k := core.KeyView{
		Holders: []core.HolderView{{Instance: "a", Token: 4}},
		Events: []core.KeyEvent{
			at(-10, core.EventTaken, "a", 1), at(-8, core.EventReleased, "a", 1),
			at(-8, core.EventTaken, "b", 2), // the word of its end was lost
			at(-6, core.EventHandedOn, "a", 3), at(-5, core.EventLost, "a", 3),
			at(-2, core.EventTaken, "a", 4), at(0, core.EventRenewed, "a", 4),
		},
	}
	l := drawn(&k)
	if len(l.Lanes) != 2 || l.Lanes[0].Name != "pod-a" || l.Lanes[1].Name != "pod-b" || len(l.Marks) != len(k.Events) || len(l.Bars) != 4 {
		t.Fatalf("drawn: %+v", l)
	}
	second := float64(lineEnd-laneNames) / 10
	for i, want := range []bar{
		{X: laneNames, Width: 2 * second}, {X: laneNames + 2*second, Width: 2}, {X: laneNames + 4*second, Width: second}, {X: laneNames + 8*second, Width: 2 * second, Open: true},
	} {
		if got := l.Bars[i]; got.X != want.X || got.Width != want.Width || got.Open != want.Open {
			t.Errorf("bar %d is %+v, want %+v", i, got, want)
		}
	}
	if drawn(&core.KeyView{}) != nil {
		t.Error("there is a time line of nothing")
	}
}

func TestHolderWhomALaterOneHasFollowedIsLeftOut(t *testing.T) {
	for name, tc := range map[string]struct{ holders, want []core.HolderView }{
		"two reports of an exclusive key": {[]core.HolderView{{Token: 4}, {Token: 9}}, []core.HolderView{{Token: 9}}},
		"readers after a writer":          {[]core.HolderView{{Token: 4}, {Token: 5, Mode: core.Shared}, {Token: 6, Mode: core.Shared}}, []core.HolderView{{Token: 5, Mode: core.Shared}, {Token: 6, Mode: core.Shared}}},
		"a writer after readers":          {[]core.HolderView{{Token: 5, Mode: core.Shared}, {Token: 6}}, []core.HolderView{{Token: 6}}},
		"a store without tokens":          {[]core.HolderView{{}, {}}, []core.HolderView{{}, {}}},
	} {
		k := core.KeyView{Holders: slices.Clone(tc.holders), Holding: len(tc.holders)}
		settle(&k)
		if !slices.Equal(k.Holders, tc.want) || k.Holding != len(tc.want) {
			t.Errorf("%s: %+v", name, k)
		}
	}
}
