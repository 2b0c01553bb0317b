package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/internal/process"
)

// worker is a process of clients, seen from the laboratory.
type worker struct {
	job     Job
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	said    complaints
	done    chan struct{} // closed when it has ended
	err     error         // how; may be read then
	stopped bool          // by SIGSTOP
}

// start runs this program once more, as a worker.
func start(job Job) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	w := &worker{job: job, cmd: exec.Command(program), done: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	w.cmd.Stderr = &w.said
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.done)
		if w.err = w.cmd.Wait(); w.err != nil {
			w.err = fmt.Errorf("process %d: %w: %s", job.Process, w.err, &w.said)
		}
	}()
	return w, nil
}

// ended reports whether the process has, by itself.
func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// stop stops the process.
func (w *worker) stop() error {
	w.stopped = true
	return process.Stop(w.cmd.Process)
}

// cont lets it go on.
func (w *worker) cont() error {
	w.stopped = false
	return process.Cont(w.cmd.Process)
}

// kill ends the process with SIGKILL and returns when it has gone.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // it may have gone
	<-w.done
}

// finish lets the clients come to an end, and returns how the process ended.
func (w *worker) finish(ctx context.Context) error {
	if err := w.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	const patience = 2 * time.Minute
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-limit.C:
		return fmt.Errorf("process %d did not end within %v: a client hangs", w.job.Process, patience)
	}
}

// complaints keeps the beginning of what is written to it.
type complaints struct {
	mu   sync.Mutex
	kept []byte
}

func (c *complaints) Write(b []byte) (int, error) {
	const most = 16 << 10
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, b[:min(len(b), most-len(c.kept))]...)
	return len(b), nil
}

// String is the line that tells most: of a panic its first, otherwise the last.
func (c *complaints) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(c.kept)), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return lines[len(lines)-1]
}
