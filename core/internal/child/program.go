package child

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockaround/lockaround/core/internal/testkit"
)

// Program is a running program. Its methods are for one goroutine, but for Running. Each returns
// when what it did has taken effect, not when the kernel was told.
type Program struct {
	cmd   *exec.Cmd
	addrs []string
	done  chan struct{}
}

// Launch starts a command, which will listen on addrs. They are host:port, and may be empty.
func Launch(cmd *exec.Cmd, addrs ...string) (*Program, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Program{cmd: cmd, addrs: addrs, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // killed, or its output tells
	}()
	return p, nil
}

// Pid returns the process's number.
func (p *Program) Pid() int { return p.cmd.Process.Pid }

// Running reports whether the process has yet to end, which is true of one that was
// stopped. A nil process has ended.
func (p *Program) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Until asks whether something holds until it does. It returns an error if the process
// ends before, or two minutes have passed.
func (p *Program) Until(what string, holds func() bool) error {
	ended := false
	err := testkit.Condition(context.Background(), what, func() bool { ended = !p.Running(); return ended || holds() })
	if ended {
		err = fmt.Errorf("it ended before: %v", p.cmd.ProcessState)
	}
	return err
}

// Stop pauses the process, and those that it has started: connections stay, nothing
// answers. See [Stop].
func (p *Program) Stop() error { return Stop(p.cmd.Process) }

// Cont ends a pause. See [Cont].
func (p *Program) Cont() error { return Cont(p.cmd.Process) }

// End asks the process to end in good order by a signal. Without a signal, and if it takes
// longer than 30 s, the process is killed.
func (p *Program) End(by os.Signal) error {
	if by != nil && p.Running() && p.cmd.Process.Signal(by) == nil {
		limit := time.NewTimer(30 * time.Second)
		defer limit.Stop()
		select {
		case <-p.done:
		case <-limit.C:
		}
	}
	return p.Kill()
}

// Kill ends the process, and those that it has started, as kill -9 does. It returns when
// they have gone and their addresses are free. Killing it again, or nil, does nothing.
func (p *Program) Kill() error {
	if !p.Running() {
		return nil
	}
	// In this order one that is stopped starts no more of them.
	_ = p.Stop() // it may have ended by itself
	those := children(p.Pid())
	for _, c := range those {
		_ = signal(c, kill) // the same
	}
	_ = p.cmd.Process.Kill() // the same
	<-p.done
	for _, c := range those {
		if err := testkit.Condition(context.Background(), fmt.Sprintf("process %d to end", c), func() bool { return gone(c) }); err != nil {
			return err
		}
	}
	for _, addr := range p.addrs {
		if err := testkit.Condition(context.Background(), addr+" to be free", func() bool { return free(addr) }); err != nil {
			return err
		}
	}
	return nil
}

// Stop pauses a process, and those that it has started. It returns when each of their
// threads has stopped: one that still ran could answer what comes after this call.
func Stop(p *os.Process) error {
	return all(p, stop, "stop", func(states string) bool { return strings.Trim(states, "TtZX") == "" })
}

// Cont ends a pause. It returns when no thread is stopped any more.
func Cont(p *os.Process) error {
	return all(p, cont, "go on", func(states string) bool { return !strings.ContainsAny(states, "Tt") })
}

func all(p *os.Process, sig os.Signal, what string, reached func(states string) bool) error {
	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("%v to process %d: %w", sig, p.Pid, err)
	}
	told := []int{p.Pid}
	return testkit.Condition(context.Background(), fmt.Sprintf("process %d to %s", p.Pid, what), func() bool {
		if !reached(states(p.Pid)) {
			return false
		}
		ok := true
		for _, c := range children(p.Pid) {
			if !slices.Contains(told, c) {
				told = append(told, c)
				_ = signal(c, sig) // it may have ended
			}
			ok = ok && reached(states(c))
		}
		return ok
	})
}

// states returns a letter for the state of each of a process's threads, as proc(5) and
// ps(1) have them: T is stopped, Z has ended. It is empty for a process that has gone.
func states(pid int) string {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is well-formed
	if threads == nil && !linux() {
		out, _ := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(pid)).Output() // it fails if there is none
		return strings.TrimSpace(string(out[:min(1, len(out))]))
	}
	var all strings.Builder
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The state comes after the program's name, which may contain anything.
		if i := strings.LastIndex(string(text), ") "); i >= 0 && i+2 < len(text) {
			all.WriteByte(text[i+2])
		}
	}
	return all.String()
}

// children are the processes that a process has started and that live. Only Linux tells.
func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well-formed
	var pids []int
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may have ended
		for _, word := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

func linux() bool {
	_, err := os.Stat("/proc/self/task")
	return err == nil
}

// gone reports whether a process has let go of all that it had. One whose parent has not
// asked yet how it ended has.
func gone(pid int) bool { return strings.Trim(states(pid), "ZX") == "" }

func signal(pid int, sig os.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(sig)
}

// free reports whether one could listen on addr.
func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	return err == nil && l.Close() == nil
}

// reserved keeps the ports that FreePorts has returned from the other processes that call it: as long
// as this one lives it has the UDP ports of the same numbers, which servers do not use.
var reserved struct {
	sync.Mutex
	conns []net.PacketConn
}

// FreePorts returns n different ports of 127.0.0.1 that nobody had a moment ago. No system
// gives them to those who do not ask for them by number, and FreePorts gives each away once, so that
// a server which is down for a while finds its port as it was.
func FreePorts(n int) ([]string, error) {
	const lowest, beyond, tries = 20_000, 32_000, 1000
	var ports []string
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := strconv.Itoa(lowest + rand.IntN(beyond-lowest))
		addr := net.JoinHostPort("127.0.0.1", port)
		if slices.Contains(ports, port) || !free(addr) {
			continue
		}
		conn, err := net.ListenPacket("udp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err == nil { // a system that has no UDP here reserves nothing
			reserved.Lock()
			reserved.conns = append(reserved.conns, conn)
			reserved.Unlock()
		}
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("no %d ports of %d to %d are free", n, lowest, beyond)
}

// FreePort returns one port as FreePorts does.
func FreePort() (string, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return "", err
	}
	return ports[0], nil
}
