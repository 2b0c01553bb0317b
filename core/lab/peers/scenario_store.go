package main

import (
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// beside are the scenarios of a store whose peers are those on the same store, under a name
// that their charts begin with. part is the title of their table.
func beside(name, part string, store Store) []Scenario {
	work := []Metric{
		{Name: "requests", Title: "requests that the store had for a section", Unit: measure.Each, Less: true},
		inServer,
	}
	all := sweep(Scenario{Name: name, Title: "each its own key", Part: part})
	all = []Scenario{all[0], all[3], all[6]}
	for _, n := range []int{2, 32} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("%s/hand-over-%d", name, n), Title: fmt.Sprintf("hand-over between %d processes", n),
			Chart: name + "-hand-over", Part: part, Processes: n, Callers: 1, Body: time.Millisecond, Jitter: time.Millisecond, Play: relay,
			Metrics: []Metric{
				{Name: "wait", Title: "median", Unit: measure.Microseconds, Less: true},
				{Name: "take-p99", Title: "p99", Unit: measure.Microseconds, Less: true, Detail: true},
			},
		})
	}
	all = append(all, Scenario{
		Name: name + "/busy", Title: "16 callers on 1 key, 1 process", Chart: name + "-busy", Part: part, Processes: 1, Callers: 16, Play: saturate,
		Metrics: rate[:1:1],
	})
	for i := range all {
		all[i].Stores = []Store{store}
	}
	return metered(all, work...)
}

// chartsBeside are the charts of those scenarios.
func chartsBeside(name, part string) []chartOf {
	return []chartOf{
		{name, part + ": critical sections per second over callers, free keys: more is better", true},
		{name + "-hand-over", part + ": hand-over between processes: less is better", false},
		{name + "-busy", part + ": critical sections per second, one key: more is better", false},
	}
}
