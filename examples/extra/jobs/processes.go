package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// processes are the replicas.
type processes struct {
	all     []*process
	said    chan message
	readers sync.WaitGroup
}

// process is a replica.
type process struct {
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
}

// message is a line of a replica.
type message struct {
	from *process
	what string // "ready", "begin", "complete", "outcome", or "ended", which is no line
	tick time.Time
	more string // the token, or the outcome
}

// startAll starts the replicas. They are to be ended also if there is an error.
func startAll(o options) (*processes, error) {
	p := &processes{said: make(chan message)}
	for n := 1; n <= o.replicas; n++ {
		if err := p.start(n, o); err != nil {
			return p, fmt.Errorf("start replica %d: %w", n, err)
		}
	}
	return p, nil
}

func (p *processes) start(number int, o options) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	r := &process{number: number, cmd: exec.Command(program, "-replica", "-redis", o.redis, "-scheduler", o.scheduler, "-period", o.period.String(), "-namespace", o.namespace)}
	r.cmd.Stderr = os.Stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	p.all = append(p.all, r)
	p.readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.said <- r.message(lines.Text())
		}
		_ = r.cmd.Wait() // it has told of an error, or was killed
		p.said <- message{from: r, what: "ended"}
	})
	return nil
}

func (r *process) message(line string) message {
	words := append(strings.Fields(line), "", "", "")
	seconds, _ := strconv.ParseInt(words[1], 10, 64) // "ready" has none
	return message{from: r, what: words[0], tick: time.Unix(seconds, 0), more: words[2]}
}

// allow lets the replica's run go on.
func (r *process) allow() error {
	_, err := fmt.Fprintln(r.in, "go on")
	return err
}

// kill ends the replica as kill -9 does.
func (r *process) kill() error { return r.cmd.Process.Kill() }

// end ends the replicas and waits for it.
func (p *processes) end() {
	for _, r := range p.all {
		_ = r.in.Close() // which ends it
	}
	go func() {
		p.readers.Wait()
		close(p.said)
	}()
	for range p.said { // so that nobody is kept from its end
	}
}
