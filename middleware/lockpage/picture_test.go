package lockpage

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/watch"
)

func TestTimeLineHasABarForEachHold(t *testing.T) {
	now := time.Now()
	at := func(s int, kind watch.Kind, instance string, token int64) watch.Event {
		return watch.Event{At: now.Add(time.Duration(s) * time.Second), Kind: kind, Identity: "pod-" + instance, Instance: instance, Token: token}
	}
	k := watch.Key{
		Holders: []watch.Holder{{Instance: "a", Token: 4}},
		Events: []watch.Event{
			at(-10, watch.Taken, "a", 1), at(-8, watch.Released, "a", 1),
			at(-8, watch.Taken, "b", 2), // the word of its end was lost
			at(-6, watch.HandedOn, "a", 3), at(-5, watch.Lost, "a", 3),
			at(-2, watch.Taken, "a", 4), at(0, watch.Renewed, "a", 4),
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
	if drawn(&watch.Key{}) != nil {
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
	for name, tc := range map[string]struct{ holders, want []watch.Holder }{
		"two reports of an exclusive key": {[]watch.Holder{{Token: 4}, {Token: 9}}, []watch.Holder{{Token: 9}}},
		"readers after a writer":          {[]watch.Holder{{Token: 4}, {Token: 5, Mode: core.Shared}, {Token: 6, Mode: core.Shared}}, []watch.Holder{{Token: 5, Mode: core.Shared}, {Token: 6, Mode: core.Shared}}},
		"a writer after readers":          {[]watch.Holder{{Token: 5, Mode: core.Shared}, {Token: 6}}, []watch.Holder{{Token: 6}}},
		"somebody beside this process":    {[]watch.Holder{{Token: 9}, {Token: 4, Self: true}}, []watch.Holder{{Token: 4, Self: true}, {Token: 9}}},
		"a reader beside this process":    {[]watch.Holder{{Token: 9, Mode: core.Shared}, {Token: 4, Self: true}}, []watch.Holder{{Token: 4, Self: true}, {Token: 9, Mode: core.Shared}}},
		"a store without tokens":          {[]watch.Holder{{}, {}}, []watch.Holder{{}, {}}},
	} {
		k := watch.Key{Holders: slices.Clone(tc.holders), Holding: len(tc.holders)}
		settle(&k)
		if !slices.Equal(k.Holders, tc.want) || k.Holding != len(tc.want) {
			t.Errorf("%s: %+v", name, k)
		}
	}
}
