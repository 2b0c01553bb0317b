package counts_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/counts"
)

// probe is a test that may fail.
type probe struct {
	testing.TB
	failed bool
}

func (p *probe) Helper()               {}
func (p *probe) Fatalf(string, ...any) { p.failed = true }

func TestVariableCountsMoreThanFullCountsAndThoseMoreThanFew(t *testing.T) {
	for _, tt := range []struct {
		figures, number, time string
		n                     int
		d                     time.Duration
		failed                bool
	}{
		{n: 2, d: time.Second},
		{figures: "1", n: 100, d: time.Minute},
		{figures: "0", n: 2, d: time.Second},
		{number: "7", time: "3s", n: 7, d: 3 * time.Second},
		{figures: "1", number: "7", time: "3s", n: 7, d: 3 * time.Second},
		{number: "0", time: "3s", d: 3 * time.Second, failed: true},
		{number: "many", time: "3s", d: 3 * time.Second, failed: true},
		{number: "7", time: "-1s", n: 7, d: -time.Second, failed: true},
	} {
		t.Setenv(counts.Variable, tt.figures)
		t.Setenv("NUMBER", tt.number)
		t.Setenv("TIME", tt.time)
		p := &probe{TB: t}
		if n, d := counts.Of(p, "NUMBER", 2, 100), counts.Time(p, "TIME", time.Second, time.Minute); n != tt.n || d != tt.d || p.failed != tt.failed {
			t.Errorf("%+v: %d, %v, failed %v", tt, n, d, p.failed)
		}
	}
}
