// Package child runs other processes, which can be stopped and killed: programs, and the one that
// runs once more, a test's binary or a laboratory's.
//
// # Files
//
//	child.go       the same program once more, in a role; complaints.go keeps its last words
//	program.go     any program, stopped, continued and killed with those that it has started
//	signals_*.go   the signals, where a system has them
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// variable names a child's role, and argument is what it is told.
const (
	variable = "LOCKAROUND_CHILD"
	argument = "LOCKAROUND_CHILD_TOLD"
)

// Roles are what a child may be: functions that get what it was told, as JSON.
type Roles map[string]func(told string) error

// Main is the first call of a TestMain, or of a main. It does not return in a child, which plays its role
// and ends. The others go on.
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

// Process is a child. It is for one goroutine, but for Wait.
type Process struct {
	// Out is what it prints. In ends when the child may.
	Out *bufio.Reader
	In  io.WriteCloser
	// Wait returns how the process ended, with its last words. What it printed must have been
	// read, or be of no use.
	Wait func() error
	cmd  *exec.Cmd
}

// New starts a child and tells it something, as JSON. It ends with ctx at the latest.
func New(ctx context.Context, role string, told any) (*Process, error) {
	said := new(complaints)
	return start(ctx, role, told, said, said)
}

// Start starts a child, which ends with the test and shares its standard error.
func Start(t testing.TB, role string, told any) (*Process, error) {
	p, err := start(context.Background(), role, told, os.Stderr, new(complaints))
	if err == nil {
		t.Cleanup(p.Kill)
	}
	return p, err
}

func start(ctx context.Context, role string, told any, errs io.Writer, said *complaints) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	// With the race detector it would linger for a second at its end.
	cmd.Env = append(os.Environ(), variable+"="+role, argument+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = errs
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{Out: bufio.NewReader(out), In: in, cmd: cmd, Wait: sync.OnceValue(func() error {
		err := cmd.Wait()
		if words := said.String(); err != nil && words != "" {
			return fmt.Errorf("%w: %s", err, words)
		}
		return err
	})}, nil
}

// Stop pauses the process with SIGSTOP, and Cont ends the pause.
func (p *Process) Stop() error { return Stop(p.cmd.Process) }

// Cont ends a pause.
func (p *Process) Cont() error { return Cont(p.cmd.Process) }

// Kill ends the process as kill -9 does, and returns when it has gone. Killing it twice is
// a no-op.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = p.Wait()             // reports the kill
}
