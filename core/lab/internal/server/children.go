package server

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Some servers, PostgreSQL for one, are a process for each connection, of which each has a
// group of its own. These are found as Linux has them.

const stop = syscall.SIGSTOP

// children are the processes that a process has started and that live.
func children(pid int) []*os.Process {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil // it has ended itself
	}
	var all []*os.Process
	for _, word := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		if p, err := os.FindProcess(child); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// outlive returns when a process that was killed has let go of what it had.
func outlive(p *os.Process) {
	const patience = 10 * time.Second
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < patience; <-tick.C {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil {
			return
		}
		// After the program's name, which may contain anything, comes the state: Z is
		// one whose parent has not asked yet how it has ended.
		if _, rest, _ := cutLast(string(text), ") "); strings.HasPrefix(rest, "Z") {
			return
		}
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
