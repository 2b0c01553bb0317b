package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time by CLOCK_MONOTONIC in ns, which all processes of a machine share. It
// goes on while a process is stopped.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has it
	}
	return t.Nano()
}

// At is t, which has a monotonic reading, by the clock of [Now]. It may come out too early
// by as long as the process was interrupted meanwhile, and never too late.
func At(t time.Time) int64 {
	now := Now()
	return now + int64(time.Until(t))
}
