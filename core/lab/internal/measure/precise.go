package measure

import (
	"runtime"
	"time"
)

// spinTime is how long before a moment a goroutine begins to wait for it actively. A sleep
// of the kernel's ends up to 0.1 ms late; one of Go's that is longer than a millisecond
// ends 10 % late or more, as idle threads wait for whole milliseconds.
const spinTime = 150 * time.Microsecond

// Spend takes that long, as exactly as can be had: 2 ms took 2.00 ms for 4 % of them on a
// processor, where time.Sleep took 2.2 ms.
func Spend(d time.Duration) { Until(time.Now().Add(d)) }

// Until returns at that moment, at once if it is past.
func Until(end time.Time) {
	if left := time.Until(end); left > 2*spinTime {
		nap(left - spinTime)
	}
	for time.Until(end) > 0 {
		runtime.Gosched()
	}
}

// Idle returns soon after that moment, at once if it is past, and uses no processor.
func Idle(end time.Time) {
	if left := time.Until(end); left > 0 {
		nap(left)
	}
	if left := time.Until(end); left > 0 { // there was no alarm
		time.Sleep(left)
	}
}
