// Package servers runs the servers of tests and laboratories, each in a folder of its own on free
// ports of 127.0.0.1: Redis and Valkey alone, as a Cluster and under the watch of Sentinels, etcd,
// ZooKeeper, PostgreSQL and MariaDB. It needs no client of any of them.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
)

// Server is a program that answers a while after it was started. Its methods are for one
// goroutine. Those that return an error return when what they did has taken effect.
type Server struct {
	Cmd   *exec.Cmd // which is copied for each start; its output goes to Log
	Log   string    // a file
	Addrs []string  // those that are waited for to be free when it has ended; clients' first
	End   os.Signal // ends it in good order; nil if it leaves nothing behind when it is killed

	// Ready returns why the server does not answer yet. It must not take somebody else's
	// server on the same address for this one.
	Ready func() error

	// Answers is what is asked when a pause has ended; nil is Ready.
	Answers func() error

	Version string // of the product, which comes first

	ports   []string
	folder  string // empty if others remove it
	clock   *clock // nil if its wall clock is the machine's
	run     *child.Program
	stopped bool
	killed  bool
}

// Options are what a server is started with, besides what makes it one of a test. The zero value
// is a server that has the machine's clock.
type Options struct {
	Args []string // more arguments of the program: "--maxmemory", "10mb"
	Env  []string // besides this process's: "NAME=value"
	// Clock lets [Server.Jump] set the server's wall clock. Without a C compiler it cannot.
	Clock bool
}

// start starts n servers that are one store, and returns when all answer. configure gives each its
// command. It is told the ports of all, so many for each, of which the first is for clients.
func (o Options) start(ctx context.Context, name string, n, each int, configure func(s *Server, i int, ports []string) error) ([]*Server, error) {
	// Free ports may be taken by somebody else before the servers have them.
	for tries := 1; ; tries++ {
		all, spawned, err := o.try(ctx, name, n, each, configure)
		if err == nil {
			return all, nil
		}
		for _, s := range all {
			err = errors.Join(err, s.Close())
		}
		if !spawned || tries == 5 || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (o Options) try(ctx context.Context, name string, n, each int, configure func(s *Server, i int, ports []string) error) (all []*Server, spawned bool, err error) {
	ports, err := child.FreePorts(n * each)
	if err != nil {
		return nil, false, err
	}
	for i := range n {
		s := &Server{ports: ports[i*each : (i+1)*each]}
		if s.folder, err = os.MkdirTemp("", "lockaround-"+name+"-"); err != nil {
			return all, false, err
		}
		all = append(all, s)
		s.Log, s.Addrs = filepath.Join(s.folder, "log"), []string{net.JoinHostPort("127.0.0.1", s.ports[0])}
		if err := configure(s, i, ports); err != nil {
			return all, false, err
		}
		s.Cmd.Env = slices.Concat(os.Environ(), s.Cmd.Env, o.Env)
		if o.Clock {
			if s.clock, err = buildClock(s.folder); err == nil {
				s.Cmd.Env = append(s.Cmd.Env, s.clock.environment()...)
			} else if !errors.Is(err, exec.ErrNotFound) {
				return all, false, err
			}
		}
	}
	for _, s := range all {
		if err := s.Spawn(); err != nil {
			return all, false, err
		}
	}
	for _, s := range all {
		if err := s.Await(ctx, s.Ready); err != nil {
			return all, true, err
		}
	}
	return all, true, nil
}

// missing is the error of a program that is not installed, in one line.
func missing(name, debian string, err error) error {
	if !errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w: %w", exec.ErrNotFound, err)
	}
	return fmt.Errorf("start %s: %w; Debian has it in the package %s", name, err, debian)
}

// Addr returns the host and port for clients.
func (s *Server) Addr() string { return s.Addrs[0] }

// Start starts the server and returns when it answers. One that does not is killed.
func (s *Server) Start(ctx context.Context) error {
	if err := s.Spawn(); err != nil {
		return err
	}
	return s.Await(ctx, s.Ready)
}

// Spawn starts the server and does not wait for it to answer.
func (s *Server) Spawn() error {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the program has it
	// What has been started cannot be started again.
	cmd := &exec.Cmd{
		Path: s.Cmd.Path, Args: s.Cmd.Args, Dir: s.Cmd.Dir, Env: s.Cmd.Env, SysProcAttr: s.Cmd.SysProcAttr, Err: s.Cmd.Err,
		Stdout: log, Stderr: log,
	}
	run, err := child.Launch(cmd, s.Addrs...)
	if err != nil {
		return fmt.Errorf("start %s: %w", s, err)
	}
	s.run, s.stopped, s.killed = run, false, false
	return nil
}

// Await returns when the server is ready. One that does not get there is killed, and the
// error has its last words.
func (s *Server) Await(ctx context.Context, ready func() error) error {
	var last error
	err := s.run.Until("an answer", func() bool {
		last = ready()
		return last == nil || ctx.Err() != nil
	})
	if err = errors.Join(err, ctx.Err()); err == nil && !s.run.Running() {
		err = errors.New("it has ended, and somebody else answers at its address")
	}
	if err != nil {
		return fmt.Errorf("%s does not answer: %w: %s", s, errors.Join(err, last, s.run.Kill()), s.lastWords())
	}
	return nil
}

func (s *Server) lastWords() string {
	out, err := os.ReadFile(s.Log)
	if err != nil {
		return err.Error()
	}
	return string(out[max(0, len(out)-1000):])
}

// Pid returns the number of the server's process.
func (s *Server) Pid() int { return s.run.Pid() }

// Serves reports whether the server runs, and was not stopped.
func (s *Server) Serves() bool { return s.run.Running() && !s.stopped }

// Kill ends the server as kill -9 does, until [Server.Revive]. Killing it again, or before it was
// started, does nothing.
func (s *Server) Kill() error {
	s.killed = true
	return s.run.Kill()
}

// Revive starts a server again that [Server.Kill] has ended, with nothing but what is in its
// files. Others are left alone.
func (s *Server) Revive(ctx context.Context) error {
	if !s.killed {
		return nil
	}
	return s.Start(ctx)
}

// Retire ends the server in good order. One that was stopped goes on for that. Of one that has
// ended it is a no-op.
func (s *Server) Retire() error {
	if !s.run.Running() {
		return nil
	}
	if s.stopped && s.End != nil {
		if err := s.Cont(); err != nil {
			return err
		}
	}
	return s.run.End(s.End)
}

// Close ends the server for good, and removes its folder.
func (s *Server) Close() error {
	err := s.Retire()
	if s.folder != "" {
		err = errors.Join(err, os.RemoveAll(s.folder))
	}
	return err
}

// Stop pauses the server: connections stay, nothing answers.
func (s *Server) Stop() error {
	if err := s.run.Stop(); err != nil {
		return err
	}
	s.stopped = true
	return nil
}

// Cont ends a pause.
func (s *Server) Cont() error {
	s.stopped = false
	return s.run.Cont()
}

// Resume is Cont that returns when the server answers. One that was not stopped, or does not run,
// is left alone.
func (s *Server) Resume(ctx context.Context) error {
	if !s.stopped || !s.run.Running() {
		return nil
	}
	if err := s.Cont(); err != nil {
		return err
	}
	if s.Answers != nil {
		return s.Await(ctx, s.Answers)
	}
	return s.Await(ctx, s.Ready)
}

// Restart starts the server again, after killing it if it still runs. It has what was in
// its files.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Kill(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Jump sets the server's wall clock forward, or back if by is negative, by whole seconds from
// what it is. It stays so, also when the server restarts.
func (s *Server) Jump(by time.Duration) error {
	if s.clock == nil {
		return errors.New("the server's clock cannot be set: it was not asked for, or there is no C compiler to build what it takes")
	}
	return s.clock.jump(by)
}

// Clock reports whether the server's wall clock can be set, and how far it is ahead of the machine's.
func (s *Server) Clock() (ahead time.Duration, ok bool) {
	if s.clock == nil {
		return 0, false
	}
	return s.clock.ahead(), true
}

// String returns the program's name.
func (s *Server) String() string { return filepath.Base(s.Cmd.Path) }
