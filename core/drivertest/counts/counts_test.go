package counts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// probe is a test that may fail.
type probe struct {
	testing.TB
	failed string
}

func (p *probe) Helper() {}
func (p *probe) Fatalf(format string, args ...any) {
	p.failed += fmt.Sprintf(format, args...) + "\n"
}

func TestNameCountsMoreThanFullCountsAndThoseMoreThanFew(t *testing.T) {
	for _, tt := range []struct {
		says string
		full bool
		n    int
		d    time.Duration
	}{
		{"", false, 2, time.Second},
		{"all", true, 100, time.Minute},
		{"kills=7", false, 7, time.Second},
		{"kills=7,killing=3s", false, 7, 3 * time.Second},
		{"killing=1m30s,all,kills=7", true, 7, 90 * time.Second},
		{"all,turns=5", true, 100, time.Minute},
		{"turns=5", false, 2, time.Second},
	} {
		t.Setenv(counts.Variable, tt.says)
		full, n, d := counts.Full(t), counts.Of(t, "kills", 2, 100), counts.Time(t, "killing", time.Second, time.Minute)
		if full != tt.full || n != tt.n || d != tt.d {
			t.Errorf("%q: %v, %d, %v; want %v, %d, %v", tt.says, full, n, d, tt.full, tt.n, tt.d)
		}
	}
}

func TestMalformedCountFailsTheTestAndSaysWhy(t *testing.T) {
	for says, want := range map[string]string{
		"1":               `"1" is neither "all" nor a name and a count`,
		"ALL":             `"ALL" is neither`,
		"kills":           `"kills" is neither`,
		"kills=":          `"kills=" is neither`,
		"kills=7,":        `"" is neither`,
		"kills=7, turns=": `" turns=" is neither`,
		"kills=7 turns=8": `"kills=7 turns=8" is neither`,
		"kills=7,kills=8": "has kills twice",
		"kills=0":         "kills=0; a number from 1 is right",
		"kills=many":      "kills=many; a number from 1 is right",
		"kills=60s":       "kills=60s; a number from 1 is right",
		"killing=7":       "killing=7; a duration such as 60s is right",
		"killing=0s":      "killing=0s; a duration such as 60s is right",
	} {
		t.Setenv(counts.Variable, says)
		p := &probe{TB: t}
		counts.Of(p, "kills", 2, 100)
		counts.Time(p, "killing", time.Second, time.Minute)
		if !strings.Contains(p.failed, want) || !strings.Contains(p.failed, counts.Variable) {
			t.Errorf("%q: %q; want %q", says, p.failed, want)
		}
	}
}

func TestSeedIsThatOfOneScheduleUnlessMoreAreAskedFor(t *testing.T) {
	for _, tt := range []struct {
		seed, says string
		first, n   uint64
	}{
		{"", "", 1, 150},
		{"", "schedules=9", 1, 9},
		{"77", "", 77, 1},
		{"77", "schedules=9", 77, 9},
		{"77", "all", 77, 1000},
		{"0", "", 0, 1},
	} {
		t.Setenv(counts.Seed, tt.seed)
		t.Setenv(counts.Variable, tt.says)
		if first, n := counts.Seeds(t, "schedules", 1, 150, 1000); first != tt.first || n != tt.n {
			t.Errorf("seed %q, %q: %d from %d; want %d from %d", tt.seed, tt.says, n, first, tt.n, tt.first)
		}
	}
	t.Setenv(counts.Seed, "-1")
	p := &probe{TB: t}
	if counts.Seeds(p, "schedules", 1, 150, 1000); !strings.Contains(p.failed, counts.Seed+` is "-1"`) {
		t.Errorf("a seed of -1: %q", p.failed)
	}
}

func TestChildIsAskedForOneCount(t *testing.T) {
	name, says, _ := strings.Cut(counts.Asks("schedules", 2000), "=")
	t.Setenv(name, says)
	if n := counts.Of(t, "schedules", 150, 1000); n != 2000 || counts.Full(t) {
		t.Errorf("%s asks for %d schedules", says, n)
	}
}
