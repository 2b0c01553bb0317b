package measure

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestClassesHaveNoGapsAndAreNarrow(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 1000, time.Microsecond, time.Second, time.Hour, math.MaxInt64} {
		if got := middle(class(d)); math.Abs(float64(got-d)) > 0.02*float64(d) {
			t.Errorf("%v ns counts as %v ns", int64(d), int64(got))
		}
	}
	for d := time.Duration(0); d < 1<<16; d++ {
		if step := class(d+1) - class(d); step < 0 || step > 1 {
			t.Fatalf("from %d to %d ns the class goes from %d to %d", d, d+1, class(d), class(d+1))
		}
	}
	if last := class(math.MaxInt64); last >= len(Waits{}.classes) {
		t.Errorf("the longest wait is in class %d of %d", last, len(Waits{}.classes))
	}
}

func TestQuantilesAreThoseOfTheSortedWaits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	one, other := new(Waits), new(Waits)
	for i := range 10_000 {
		d := time.Duration(math.Exp(random.NormFloat64()*2 + 14))
		all = append(all, d)
		[]*Waits{one, other}[i%2].Add(d)
	}
	one.Merge(other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		want := all[int(q*float64(len(all)-1))]
		if got := one.Quantile(q); math.Abs(float64(got-want)) > 0.02*float64(want) {
			t.Errorf("quantile %v is %v; want %v", q, got, want)
		}
	}
	if one.Worst() != all[len(all)-1] {
		t.Errorf("the worst is %v; want %v", one.Worst(), all[len(all)-1])
	}
}

func TestUnfinishedWaitIsTheWorstAndNotCounted(t *testing.T) {
	w := new(Waits)
	w.Add(time.Millisecond)
	w.Unfinished(time.Second)
	if w.Count() != 1 || w.Worst() != time.Second {
		t.Errorf("there are %d waits, the worst %v; want 1 and 1s", w.Count(), w.Worst())
	}
}

func TestNoWaitsHaveNoQuantile(t *testing.T) {
	if got := new(Waits).Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v; want 0", got)
	}
}

func TestWaitsPassThroughJSON(t *testing.T) {
	w, got := new(Waits), new(Waits)
	for d := time.Duration(1); d < time.Hour; d *= 3 {
		w.Add(d)
	}
	w.Add(-time.Second)
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	if *got != *w {
		t.Errorf("they come back as %+v", got)
	}
	if err := json.Unmarshal([]byte(`{"classes":[[-1,5],[1000000,5]]}`), got); err != nil || got.Count() != 0 {
		t.Errorf("classes that do not exist count %d, %v", got.Count(), err)
	}
}
