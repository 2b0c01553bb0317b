// Package awake keeps the machine's cores from halting while something is measured. On a
// virtual machine a core that has nothing to do takes tens of microseconds to come back,
// longer than a round trip to a server beside it takes: whoever keeps it busier by chance
// looks several times as fast.
package awake

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// variable makes this program one that does nothing else.
const variable = "LOCKAROUND_LAB_AWAKE"

// Main is the first call of a program's main. It does not return in a process that
// [Start] has started.
func Main() {
	if _, ok := os.LookupEnv(variable); ok {
		if err := spin(); err != nil {
			fmt.Fprintln(os.Stderr, "keep a core awake:", err)
		}
		os.Exit(1)
	}
}

// Start has a process for each core use all time that nobody else wants, at the priority
// that is below all others, until stop is called or this process ends.
func Start() (stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var all []*exec.Cmd
	stop = func() {
		for _, c := range all {
			_ = c.Process.Kill() // it may have ended by itself
			_ = c.Wait()         // killed
		}
	}
	if runtime.GOOS != "linux" {
		return nil, errors.New("only Linux has a priority for what must disturb nobody")
	}
	for range runtime.NumCPU() {
		c := exec.Command(program)
		c.Env = append(os.Environ(), variable+"=1", "GOMAXPROCS=1")
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			stop()
			return nil, err
		}
		all = append(all, c)
	}
	return stop, nil
}
