package etcdlock

import (
	"testing"
	"time"
)

func TestEachHolderHearsOfRefusalsButNotOfEach(t *testing.T) {
	var r refusals
	start := time.Now()
	for i, tt := range []struct {
		after  time.Duration
		holder int64
		want   bool
	}{
		{0, 5, true},
		{time.Millisecond, 5, false},
		{2 * time.Millisecond, 6, true},
		{3 * time.Millisecond, 6, false},
		{2*time.Millisecond + tellInterval, 6, true},
	} {
		if got := r.add("k", tt.holder, start.Add(tt.after)); got != tt.want {
			t.Errorf("refusal %d: told %v, want %v", i, got, tt.want)
		}
	}
	if !r.recentlyRefused("k", start.Add(tellInterval)) || r.recentlyRefused("k", start.Add(time.Hour)) || r.recentlyRefused("other", start) {
		t.Error("the keys that were refused of late are not those remembered")
	}
	for i := range 3 * maxRefusals {
		r.add(string(rune(i)), 1, start)
	}
	if n := len(r.byKey); n > maxRefusals {
		t.Errorf("%d keys are remembered", n)
	}
}
