package server

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// Signal sends a signal to the server's processes: SIGSTOP leaves connections open and
// unanswered, until SIGCONT.
func (s *Server) Signal(signal os.Signal) error {
	var errs []error
	for _, m := range s.Members {
		errs = append(errs, m.Signal(signal))
	}
	if s.cmd != nil {
		// In this order one that is stopped starts no more of them.
		errs = append(errs, s.cmd.Process.Signal(signal))
		for _, c := range children(s.cmd.Process.Pid) {
			_ = c.Signal(signal) // it may have ended
		}
	}
	return errors.Join(errs...)
}

// Restart kills the server and starts it again at the same address. It has kept nothing
// that it had not written to its folder. It returns when the server answers.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	all := s.Members
	if s.cmd != nil {
		all = []*Server{s}
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, m.start(&exec.Cmd{
			Path: m.cmd.Path, Args: m.cmd.Args, Dir: m.cmd.Dir, Env: m.cmd.Env, SysProcAttr: m.cmd.SysProcAttr,
		}))
	}
	for _, m := range all {
		errs = append(errs, m.await(ctx, m.ready))
	}
	return errors.Join(errs...)
}

// Kill ends the server with SIGKILL and returns when it has gone. Killing it again does
// nothing.
func (s *Server) Kill() {
	for _, m := range s.Members {
		m.Kill()
	}
	if s.cmd == nil || s.gone() {
		return
	}
	pid := s.cmd.Process.Pid
	_ = s.Signal(stop) // it may have ended by itself
	those := children(pid)
	for _, c := range those {
		_ = c.Kill() // the same
	}
	_ = s.cmd.Process.Kill() // the same
	<-s.done
	for _, c := range those {
		outlive(c)
	}
}

// gone reports whether the server's process has ended.
func (s *Server) gone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// retire ends the server for good.
func (s *Server) retire() {
	if s.cmd != nil && s.end != nil && s.cmd.Process.Signal(s.end) == nil {
		limit := time.NewTimer(10 * time.Second)
		defer limit.Stop()
		select {
		case <-s.done:
		case <-limit.C:
		}
	}
	s.Kill()
}

// Leader returns the member that leads the ensemble; nil if none does at the moment.
func (s *Server) Leader() *Server {
	for _, m := range s.Members {
		if m.leads() {
			return m
		}
	}
	return nil
}
