package measure

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Spin says a line when it begins, and returns when the process that started this one has gone.
func Spin(string) error {
	parent := os.Getppid()
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread() // it is the thread's priority
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return err
	}
	fmt.Println("spins")
	for os.Getppid() == parent {
		for i := 0; i < 1<<20; i++ {
			continue
		}
	}
	return nil
}
