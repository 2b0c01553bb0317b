package server

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/internal/process"
)

// Stop stops the server's processes: connections stay open and unanswered, until Cont.
func (s *Server) Stop() error { return s.each((*process.Process).Stop) }

// Cont lets the server go on. It returns when its processes run.
func (s *Server) Cont() error { return s.each((*process.Process).Cont) }

// each does something to the processes of the server and its members.
func (s *Server) each(do func(*process.Process) error) error {
	var errs []error
	for _, m := range s.Members {
		errs = append(errs, m.each(do))
	}
	if s.run != nil {
		errs = append(errs, do(s.run))
	}
	return errors.Join(errs...)
}

// Restart kills the server and starts it again at the same address. It has kept nothing
// that it had not written to its folder. It returns when the server answers.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	all := s.Members
	if s.run != nil {
		all = []*Server{s}
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, m.start(m.run.Again()))
	}
	for _, m := range all {
		errs = append(errs, m.await(ctx, m.ready))
	}
	return errors.Join(errs...)
}

// Kill ends the server with SIGKILL and returns when it has gone. Killing it again does
// nothing.
func (s *Server) Kill() {
	_ = s.each((*process.Process).Kill) // what lives on keeps its port, and Restart fails
}

// retire ends the server for good.
func (s *Server) retire() error {
	return s.each(func(p *process.Process) error { return p.End(s.end) })
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
