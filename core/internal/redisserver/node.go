// Package redisserver runs redis-servers for tests and laboratories: alone, as a Cluster, and
// under the watch of Sentinels.
package redisserver

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/internal/process"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
	"github.com/lockaround/lockaround/core/internal/wallclock"
)

// Node is a redis-server in a folder of its own, on a free port of 127.0.0.1. It saves
// nothing unless its arguments say so. Its methods are for one goroutine, and return when
// what they did has taken effect.
type Node struct {
	*daemon.Daemon
	Client  *redis.Client // of this server alone, which sends nothing twice
	Version string
	port    string
	bus, id string // of a Cluster's node: its port for the others, and its name
	folder  string
	clock   *wallclock.Clock // nil if its wall clock is the machine's
	killed  bool
}

// Options are what a server is started with. The zero value is a server without a password
// that has the machine's clock.
type Options struct {
	Program string   // what takes the place of redis-server; empty is that
	Args    []string // of redis-server: "--maxmemory", "10mb"
	Env     []string // besides this process's: "NAME=value"
	// Clock lets [Node.Jump] set the server's wall clock. Without a C compiler it cannot.
	Clock bool
}

// Start returns when the server answers. The error is an [exec.ErrNotFound] if there is no
// such program.
func Start(ctx context.Context, o Options) (*Node, error) {
	o.Args = slices.Concat(inMemory, o.Args)
	return start(ctx, o, func(*Node) ([]string, error) { return nil, nil })
}

var inMemory = []string{"--save", "", "--appendonly", "no"}

// start starts a server, whose arguments begin with those of first.
func start(ctx context.Context, o Options, first func(*Node) ([]string, error)) (*Node, error) {
	program := cmp.Or(o.Program, "redis-server")
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w; Debian has it in the package %[1]s", program, err)
	}
	n := &Node{Daemon: &daemon.Daemon{}}
	if n.folder, err = os.MkdirTemp("", "lockaround-redis-"); err != nil {
		return nil, err
	}
	if err := n.launch(ctx, path, o, first); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	n.Client = redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
	return n, nil
}

func (n *Node) launch(ctx context.Context, path string, o Options, first func(*Node) ([]string, error)) error {
	if o.Clock {
		clock, err := wallclock.Build(n.folder)
		switch {
		case err == nil:
			n.clock, o.Env = clock, append(o.Env, clock.Environment()...)
		case !errors.Is(err, exec.ErrNotFound):
			return err
		}
	}
	// Free ports may be taken by somebody else before the server has them.
	for tries := 1; ; tries++ {
		ports, err := process.FreePorts(2)
		if err != nil {
			return err
		}
		n.port, n.bus = ports[0], ports[1]
		words, err := first(n)
		if err != nil {
			return err
		}
		cmd := exec.Command(path, slices.Concat(words, o.Args, []string{"--dir", n.folder, "--port", n.port, "--bind", "127.0.0.1", "--daemonize", "no"})...)
		cmd.Env = append(os.Environ(), o.Env...)
		*n.Daemon = daemon.Daemon{Cmd: cmd, Log: filepath.Join(n.folder, "log"), Addrs: []string{n.Addr()}, Ready: n.ready}
		if err := n.Daemon.Start(ctx); err == nil || tries == 5 || ctx.Err() != nil {
			return err
		}
	}
}

// Addr returns the server's host and port.
func (n *Node) Addr() string { return net.JoinHostPort("127.0.0.1", n.port) }

// Close ends the server, and removes its folder.
func (n *Node) Close() error {
	err := n.Daemon.Kill()
	if n.Client != nil {
		err = errors.Join(err, n.Client.Close())
	}
	return errors.Join(err, os.RemoveAll(n.folder))
}

// Kill ends the server as kill -9 does, until [Node.Revive].
func (n *Node) Kill() error {
	n.killed = true
	return n.Daemon.Kill()
}

// Revive starts a server again that [Node.Kill] has ended, with nothing but what is in its
// files. Others are left alone.
func (n *Node) Revive(ctx context.Context) error {
	if !n.killed {
		return nil
	}
	if err := n.Restart(ctx); err != nil {
		return err
	}
	n.killed = false
	return nil
}

// Jump sets the server's wall clock forward, or back if by is negative, by whole seconds from
// what it is. It stays so, also when the server restarts.
func (n *Node) Jump(by time.Duration) error {
	if n.clock == nil {
		return errors.New("the server's clock cannot be set: there is no C compiler to build what it takes")
	}
	return n.clock.Jump(by)
}

// Send sends one command of words without spaces, on a connection of its own, and returns
// the first line of the answer.
func (n *Node) Send(words ...string) (string, error) {
	var line string
	err := n.converse(strings.Join(words, " "), func(answer *bufio.Reader) (err error) {
		line, err = answer.ReadString('\n')
		return err
	})
	return strings.TrimSpace(line), err
}

// ready asks whether the server at the address is this process, and serves.
func (n *Node) ready() error {
	return n.converse("INFO server\r\nPING", func(answer *bufio.Reader) error {
		pid, version := "", ""
		for lines := bufio.NewScanner(answer); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if id, ok := strings.CutPrefix(line, "process_id:"); ok {
				pid = id
			}
			if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
				version = "Redis " + v
			}
			if v, ok := strings.CutPrefix(line, "valkey_version:"); ok { // after what it is compatible with
				version = "Valkey " + v
			}
			if line == "+PONG" && pid == strconv.Itoa(n.Pid()) && version != "" {
				n.Version = version
				return nil
			}
			if line == "+PONG" || strings.HasPrefix(line, "-") { // it is still loading its data
				return fmt.Errorf("process %q says %s", pid, line)
			}
		}
		return errors.New("the server has closed the connection")
	})
}

func (n *Node) converse(question string, hear func(answer *bufio.Reader) error) error {
	conn, err := net.DialTimeout("tcp", n.Addr(), 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprint(conn, question+"\r\n"); err != nil {
		return err
	}
	return hear(bufio.NewReader(conn))
}

// do sends a command.
func (n *Node) do(ctx context.Context, words ...any) error {
	if err := n.Client.Do(ctx, words...).Err(); err != nil {
		return fmt.Errorf("%v at %s: %w", words, n.Addr(), err)
	}
	return nil
}

// Nodes are servers that belong together.
type Nodes []*Node

// Addrs returns the addresses of all.
func (s Nodes) Addrs() (all []string) {
	for _, n := range s {
		all = append(all, n.Addr())
	}
	return all
}

// Serving returns those that run, and were not stopped.
func (s Nodes) Serving() (all Nodes) {
	for _, n := range s {
		if n.Serves() {
			all = append(all, n)
		}
	}
	return all
}

// Without returns all but one.
func (s Nodes) Without(n *Node) Nodes {
	return slices.DeleteFunc(slices.Clone(s), func(o *Node) bool { return o == n })
}

// Kill kills all of them.
func (s Nodes) Kill() error { return s.each((*Node).Kill) }

// Revive starts those again that were killed, see [Node.Revive].
func (s Nodes) Revive(ctx context.Context) error {
	return s.each(func(n *Node) error { return n.Revive(ctx) })
}

// Restart kills all and starts them again, as if at once.
func (s Nodes) Restart(ctx context.Context) error { return errors.Join(s.Kill(), s.Revive(ctx)) }

// Stop pauses all that were not killed.
func (s Nodes) Stop() error { return s.alive().each(func(n *Node) error { return n.Stop() }) }

// Cont lets all go on that were not killed.
func (s Nodes) Cont() error { return s.alive().each(func(n *Node) error { return n.Cont() }) }

// Close ends all.
func (s Nodes) Close() error { return s.each((*Node).Close) }

func (s Nodes) alive() Nodes {
	return slices.DeleteFunc(slices.Clone(s), func(n *Node) bool { return n.killed })
}

func (s Nodes) each(do func(*Node) error) error {
	var errs []error
	for _, n := range s {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}

// by returns the node of which something holds, nil if there is none.
func (s Nodes) by(is func(*Node) bool) *Node {
	if i := slices.IndexFunc(s, is); i >= 0 {
		return s[i]
	}
	return nil
}
