package measure

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a timer of the kernel that a goroutine waits for as for a socket, so that no
// thread and no processor of Go's waits with it.
type alarm struct {
	fd   int
	file *os.File
}

// alarms are those that nobody uses.
var alarms = make(chan *alarm, 64)

// nap sleeps that long on the kernel's clock, which must be more than nothing. Without an
// alarm it returns at once, and its caller waits in another way.
func nap(d time.Duration) {
	var a *alarm
	select {
	case a = <-alarms:
	default:
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
		if err != nil {
			return
		}
		a = &alarm{fd, os.NewFile(uintptr(fd), "timer")}
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err == nil {
		var expired [8]byte
		_, _ = a.file.Read(expired[:]) // at the time that was set
	}
	select {
	case alarms <- a:
	default:
		_ = a.file.Close() // there are enough
	}
}
