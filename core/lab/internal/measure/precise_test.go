package measure

import (
	"testing"
	"time"
)

func TestSpendIsNeverTooShort(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, spinTime, 2 * spinTime, 2 * time.Millisecond} {
		began := time.Now()
		Spend(d)
		if took := time.Since(began); took < d {
			t.Errorf("spending %v took %v", d, took)
		}
	}
}
