//go:build !linux

package measure

import "time"

// nap leaves what Go's timers may be late by to be waited for actively.
func nap(d time.Duration) { time.Sleep(d - 1100*time.Microsecond) }
