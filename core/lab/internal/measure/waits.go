package measure

import (
	"encoding/json"
	"math/bits"
	"slices"
	"time"
)

// Waits counts durations in classes that are at most 3 % wide, and keeps the longest
// exactly. The zero value is empty. It is for one goroutine.
type Waits struct {
	classes [58*perPower + 2*perPower]int64
	worst   time.Duration
}

const (
	perPower  = 32 // classes for each power of two
	powerBits = 5
)

// Add counts a wait; a negative one, from a clock that was set, counts as none.
func (w *Waits) Add(d time.Duration) {
	w.classes[class(max(d, 0))]++
	w.worst = max(w.worst, d)
}

// Unfinished counts a wait that had lasted so long when it was no longer watched: it may
// be the worst, and says nothing of the median.
func (w *Waits) Unfinished(d time.Duration) { w.worst = max(w.worst, d) }

// Merge adds the waits of o.
func (w *Waits) Merge(o *Waits) {
	for i, n := range o.classes {
		w.classes[i] += n
	}
	w.worst = max(w.worst, o.worst)
}

// Worst is the longest wait, finished or not.
func (w *Waits) Worst() time.Duration { return w.worst }

// Count is how many have finished.
func (w *Waits) Count() (n int64) {
	for _, c := range w.classes {
		n += c
	}
	return n
}

// Quantile is the wait below which the part q lies, from 0 to 1; 0 if there is none.
func (w *Waits) Quantile(q float64) time.Duration {
	rank := int64(q * float64(w.Count()-1))
	for i, n := range w.classes {
		if rank < n {
			return middle(i)
		}
		rank -= n
	}
	return 0
}

// class is the number of the class of a wait in ns: below 64 each has its own, above it
// is the 6 highest bits and how many follow them.
func class(d time.Duration) int {
	if d < 2*perPower {
		return int(d)
	}
	shift := bits.Len64(uint64(d)) - powerBits - 1
	return shift*perPower + int(d>>shift)
}

// middle is the wait in the middle of a class.
func middle(class int) time.Duration {
	shift := max(class/perPower-1, 0)
	low := time.Duration(class-shift*perPower) << shift
	return low + time.Duration(1)<<shift/2
}

// waitsJSON is Waits with only the classes that have any.
type waitsJSON struct {
	Worst   time.Duration `json:"worst"`
	Classes [][2]int64    `json:"classes"` // number and count
}

// MarshalJSON writes what UnmarshalJSON reads.
func (w *Waits) MarshalJSON() ([]byte, error) {
	out := waitsJSON{Worst: w.worst, Classes: [][2]int64{}}
	for i, n := range w.classes {
		if n > 0 {
			out.Classes = append(out.Classes, [2]int64{int64(i), n})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON ignores classes that do not exist.
func (w *Waits) UnmarshalJSON(b []byte) error {
	var in waitsJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*w = Waits{worst: in.Worst}
	valid := slices.DeleteFunc(in.Classes, func(c [2]int64) bool { return c[0] < 0 || c[0] >= int64(len(w.classes)) })
	for _, c := range valid {
		w.classes[c[0]] = c[1]
	}
	return nil
}
