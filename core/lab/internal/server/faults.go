package server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Signal sends a signal to the server's process: SIGSTOP leaves connections open and
// unanswered, until SIGCONT.
func (s *Server) Signal(signal os.Signal) error { return s.cmd.Process.Signal(signal) }

// Restart kills the server and starts it again at the same address. It has kept nothing
// that it had not written to its folder. It returns when the server answers.
func (s *Server) Restart(ctx context.Context) error {
	s.kill()
	again := exec.Command(s.cmd.Path, s.cmd.Args[1:]...)
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the program has it
	again.Stdout, again.Stderr = log, log
	if err := again.Start(); err != nil {
		return fmt.Errorf("start %s again: %w", filepath.Base(again.Path), err)
	}
	s.cmd, s.done = again, make(chan struct{})
	go func(done chan<- struct{}) {
		defer close(done)
		_ = again.Wait() // killed, or its log tells
	}(s.done)
	return s.await(ctx, s.ready)
}
