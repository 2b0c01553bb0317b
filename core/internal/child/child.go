// Package child runs a test binary once more, as another process, which can be killed.
package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// variable names a child's role, and argument is what it is told.
const (
	variable = "LOCKAROUND_TEST_CHILD"
	argument = "LOCKAROUND_TEST_CHILD_ARGUMENT"
)

// Roles are what a child may be: functions that get what the test has told it.
type Roles map[string]func(argument string) error

// Main is the first call of a TestMain. It does not return in a child, which plays its role
// and ends. The others go on with their tests.
func Main(roles Roles) {
	name, is := os.LookupEnv(variable)
	if !is {
		return
	}
	role, known := roles[name]
	if !known {
		fmt.Fprintf(os.Stderr, "there is no role %q\n", name)
		os.Exit(1)
	}
	if err := role(os.Getenv(argument)); err != nil {
		fmt.Fprintf(os.Stderr, "the %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a child. It is for one goroutine.
type Process struct {
	// Out is what it prints. In ends when the child may.
	Out *bufio.Reader
	In  io.WriteCloser
	cmd *exec.Cmd
}

// Start starts a child, which ends with the test.
func Start(t testing.TB, role, told string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(program)}
	// With the race detector it would linger for a second at its end.
	p.cmd.Env = append(os.Environ(), variable+"="+role, argument+"="+told, "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = os.Stderr
	if p.In, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(p.Kill)
	return p, nil
}

// Kill ends the process as kill -9 does, and returns when it has gone. Killing it twice is
// a no-op.
func (p *Process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // reports the kill
	}
}

// Wait returns how the process ended by itself. What it printed must have been read.
func (p *Process) Wait() error { return p.cmd.Wait() }
