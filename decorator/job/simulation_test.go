package job_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/job"
)

// tight leaves 2 s of each tick's half.
var tight = job.Schedule{Every: 5 * time.Minute, Skew: 30 * time.Second, MaxRun: 90 * time.Second, CatchUp: true}

var tightPolicy = core.Policy{Key: "job:report", TTL: 14 * time.Second}

// In each simulation five replicas, whose clocks differ by up to 30 s, run 1,000 ticks, and
// some of them are killed. What counts as a completed run is a function that came to its
// end. A run in which its replica was killed does not count.
//
// A death between the end of the function and the moment at which the store hears of it is
// planned on its own, as no lock can tell it from one in the middle: only ticks with such
// a death may be completed twice, and they are counted.
func TestJobIsRunOnceATickWhoeverDies(t *testing.T) {
	for _, tc := range []struct {
		name  string
		seeds uint64
		plan  func(*rand.Rand) []death
	}{
		{"nobody", 1, func(*rand.Rand) []death { return nil }},
		{"many", 3, func(rng *rand.Rand) []death {
			return [][]death{
				nil, nil, nil, nil,
				{beforeRun},
				{inRun},
				{told},
				{untold},
				{waiting},
				{inRun, inRun},
				{beforeRun, inRun},
				{inRun, waiting},
				{inRun, told},
				{told, waiting},
			}[rng.IntN(14)]
		}},
	} {
		for seed := range tc.seeds {
			t.Run(fmt.Sprint(tc.name, " dies, seed ", seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, seed, tightPolicy, tight)
					w.play(5, 1000, tc.plan)
					w.log()
					twice := 0
					for n, tk := range w.ticks {
						switch {
						case tk.completed == 1:
						case tk.completed == 2 && tk.untold == 1:
							twice++
						default:
							t.Errorf("tick %d: %+v", n, tk)
						}
					}
					t.Logf("%6d ticks completed twice, all of them with a death that the store could not tell from one in the middle", twice)
				})
			})
		}
	}
}

func TestJobWithoutCatchUpIsRunAtMostOnceATick(t *testing.T) {
	schedule := job.Schedule{Every: 5 * time.Minute, Skew: 149 * time.Second, MaxRun: 2 * time.Minute}
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed, tightPolicy, schedule)
				w.play(5, 1000, func(rng *rand.Rand) []death {
					return [][]death{nil, nil, nil, {told}, {inRun}, {beforeRun}}[rng.IntN(6)]
				})
				w.log()
				lost := 0
				for n, tk := range w.ticks {
					switch {
					case tk.completed == 1:
					case tk.completed == 0 && tk.began > 0:
						lost++ // with the replica that had it
					default:
						t.Errorf("tick %d: %+v", n, tk)
					}
				}
				t.Logf("%6d ticks lost with the replica that ran them", lost)
			})
		})
	}
}
