package main

import (
	"syscall"
	"time"
)

// nap sleeps on the kernel's clock. A signal may end it sooner, and its caller looks.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // interrupted
}
