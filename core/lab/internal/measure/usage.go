package measure

import (
	"syscall"
	"time"
)

// Processor is the time of all cores that this process has used; 0 if the system does not say.
func Processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
