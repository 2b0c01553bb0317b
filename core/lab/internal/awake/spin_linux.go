package awake

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// spin returns when the process that started this one has gone.
func spin() error {
	parent := os.Getppid()
	runtime.LockOSThread() // it is the thread's priority
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return err
	}
	for os.Getppid() == parent {
		for i := 0; i < 1<<20; i++ {
			continue
		}
	}
	return nil
}
