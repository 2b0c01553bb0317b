package lockpage

import (
	"slices"
	"strings"
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

func TestTextOfOthersStaysInItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"k\u00e9 ke\u0301 n\u0303\u0323":        "k\u00e9 ke\u0301 n\u0303\u0323",
		"a\u0336\u0336\u0336b\u0336":            "a\u0336\u0336\\u0336b\u0336",
		strings.Repeat("\u0489", 4):             "\u0489\u0489\\u0489\\u0489",
		"\u202eevil\u2066\x00\xff":              "\\u202eevil\\u2066\\x00\\xff",
		"\U0001f468\u200d\U0001f469":            "\U0001f468\\u200d\U0001f469",
		strings.Repeat("\u0939\u093f\u0902", 2): strings.Repeat("\u0939\u093f\u0902", 2), // a word of Hindi
	} {
		if got := printable(text); got != want {
			t.Errorf("%+q is shown as %+q, want %+q", text, got, want)
		}
	}
	if got := printable(strings.Repeat("\u0301", 10_000)); len(got) > 6*maxText+40 {
		t.Errorf("%d bytes are shown", len(got))
	}
}

func TestHolderWhomALaterOneHasFollowedIsLeftOut(t *testing.T) {
	for name, tc := range map[string]struct{ holders, want []core.HolderView }{
		"two reports of an exclusive key": {[]core.HolderView{{Token: 4}, {Token: 9}}, []core.HolderView{{Token: 9}}},
		"readers after a writer":          {[]core.HolderView{{Token: 4}, {Token: 5, Mode: core.Shared}, {Token: 6, Mode: core.Shared}}, []core.HolderView{{Token: 5, Mode: core.Shared}, {Token: 6, Mode: core.Shared}}},
		"a writer after readers":          {[]core.HolderView{{Token: 5, Mode: core.Shared}, {Token: 6}}, []core.HolderView{{Token: 6}}},
		"somebody beside this process":    {[]core.HolderView{{Token: 9}, {Token: 4, Self: true}}, []core.HolderView{{Token: 4, Self: true}, {Token: 9}}},
		"a reader beside this process":    {[]core.HolderView{{Token: 9, Mode: core.Shared}, {Token: 4, Self: true}}, []core.HolderView{{Token: 4, Self: true}, {Token: 9, Mode: core.Shared}}},
		"a store without tokens":          {[]core.HolderView{{}, {}}, []core.HolderView{{}, {}}},
	} {
		k := core.KeyView{Holders: slices.Clone(tc.holders), Holding: len(tc.holders)}
		settle(&k)
		if !slices.Equal(k.Holders, tc.want) || k.Holding != len(tc.want) {
			t.Errorf("%s: %+v", name, k)
		}
	}
}
