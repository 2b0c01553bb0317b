package server

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Stop stops the server's processes: connections stay open and unanswered, until Cont.
func (s *Server) Stop() error { return s.each((*servers.Server).Stop) }

// Cont lets the server go on. It returns when its processes run.
func (s *Server) Cont() error { return s.each((*servers.Server).Cont) }

// each does something to the processes of the server and its members.
func (s *Server) each(do func(*servers.Server) error) error {
	var errs []error
	for _, m := range s.Members {
		errs = append(errs, m.each(do))
	}
	if s.daemon != nil {
		errs = append(errs, do(s.daemon))
	}
	return errors.Join(errs...)
}

// Restart kills the server and starts it again at the same address. It has kept nothing
// that it had not written to its folder. It returns when the server answers.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	all := s.Members
	if s.daemon != nil {
		all = []*Server{s}
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, m.daemon.Spawn())
	}
	for _, m := range all {
		errs = append(errs, m.daemon.Await(ctx, m.daemon.Ready))
	}
	return errors.Join(errs...)
}

// Kill ends the server with SIGKILL and returns when it has gone. Killing it again does
// nothing.
func (s *Server) Kill() {
	_ = s.each((*servers.Server).Kill) // what lives on keeps its port, and Restart fails
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
