// Package daemon runs the servers of tests and laboratories: programs that answer a while
// after they were started.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/lockaround/lockaround/core/internal/process"
)

// Daemon is a server on addresses of its own. Its methods are for one goroutine. Those that
// return an error return when what they did has taken effect.
type Daemon struct {
	Cmd   *exec.Cmd // which is copied for each start; its output goes to Log
	Log   string    // a file
	Addrs []string  // those that are waited for to be free when it has ended
	End   os.Signal // ends it in good order; nil if it leaves nothing behind when it is killed

	// Ready returns why the server does not answer yet. It must not take somebody else's
	// server on the same address for this one.
	Ready func() error

	run     *process.Process
	stopped bool
}

// Start starts the server and returns when it answers. One that does not is killed.
func (d *Daemon) Start(ctx context.Context) error {
	if err := d.Spawn(); err != nil {
		return err
	}
	return d.Await(ctx, d.Ready)
}

// Spawn starts the server and does not wait for it to answer.
func (d *Daemon) Spawn() error {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the program has it
	// What has been started cannot be started again.
	cmd := &exec.Cmd{
		Path: d.Cmd.Path, Args: d.Cmd.Args, Dir: d.Cmd.Dir, Env: d.Cmd.Env, SysProcAttr: d.Cmd.SysProcAttr, Err: d.Cmd.Err,
		Stdout: log, Stderr: log,
	}
	run, err := process.Start(cmd, d.Addrs...)
	if err != nil {
		return fmt.Errorf("start %s: %w", d, err)
	}
	d.run, d.stopped = run, false
	return nil
}

// Await returns when the server is ready. One that does not get there is killed, and the
// error has its last words.
func (d *Daemon) Await(ctx context.Context, ready func() error) error {
	var last error
	err := d.run.Until("an answer", func() bool {
		last = ready()
		return last == nil || ctx.Err() != nil
	})
	if err = errors.Join(err, ctx.Err()); err == nil && !d.run.Running() {
		err = errors.New("it has ended, and somebody else answers at its address")
	}
	if err != nil {
		return fmt.Errorf("%s does not answer: %w: %s", d, errors.Join(err, last, d.Kill()), d.lastWords())
	}
	return nil
}

func (d *Daemon) lastWords() string {
	out, err := os.ReadFile(d.Log)
	if err != nil {
		return err.Error()
	}
	return string(out[max(0, len(out)-1000):])
}

// Pid returns the number of the server's process.
func (d *Daemon) Pid() int { return d.run.Pid() }

// Serves reports whether the server runs, and was not stopped.
func (d *Daemon) Serves() bool { return d.run.Running() && !d.stopped }

// Kill ends the server as kill -9 does. Killing it again, or before it was started, does
// nothing.
func (d *Daemon) Kill() error { return d.run.Kill() }

// Retire ends the server in good order. Of one that has ended it is a no-op.
func (d *Daemon) Retire() error {
	if !d.run.Running() {
		return nil
	}
	return d.run.End(d.End)
}

// Stop pauses the server: connections stay, nothing answers.
func (d *Daemon) Stop() error {
	if err := d.run.Stop(); err != nil {
		return err
	}
	d.stopped = true
	return nil
}

// Cont ends a pause.
func (d *Daemon) Cont() error {
	d.stopped = false
	return d.run.Cont()
}

// Restart starts the server again, after killing it if it still runs. It has what was in
// its files.
func (d *Daemon) Restart(ctx context.Context) error {
	if err := d.Kill(); err != nil {
		return err
	}
	return d.Start(ctx)
}

// String returns the program's name.
func (d *Daemon) String() string { return filepath.Base(d.Cmd.Path) }
