package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Node is a redis-server, or what takes its place. It saves nothing unless its arguments say so.
type Node struct {
	*Server
	id string // of a Cluster's node: its name
}

// StartRedis returns when the server answers. The error is an [exec.ErrNotFound] if there is no
// redis-server.
func StartRedis(ctx context.Context, o Options) (*Node, error) {
	return startNode(ctx, "redis-server", o, nil)
}

// StartValkey is [StartRedis] of a valkey-server, which takes the same arguments.
func StartValkey(ctx context.Context, o Options) (*Node, error) {
	return startNode(ctx, "valkey-server", o, nil)
}

var inMemory = []string{"--save", "", "--appendonly", "no"}

// startNode starts a server, whose arguments begin with those of first, which may be nil.
func startNode(ctx context.Context, program string, o Options, first func(*Node) ([]string, error)) (n *Node, err error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, missing(program, program, err)
	}
	if _, err := o.start(ctx, "redis", 1, 2, func(s *Server, _ int, _ []string) (err error) {
		n = &Node{Server: s}
		words := inMemory
		if first != nil {
			if words, err = first(n); err != nil {
				return err
			}
		}
		s.Cmd = exec.Command(path, slices.Concat(words, o.Args, []string{"--dir", s.folder, "--port", s.ports[0], "--bind", "127.0.0.1", "--daemonize", "no"})...)
		s.Ready = n.ready
		s.Answers = func() error {
			_, err := n.Do(context.Background(), "PING")
			if errors.As(err, new(refusal)) { // which is an answer
				return nil
			}
			return err
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return n, nil
}

// ready asks whether the server at the address is this process, and serves.
func (n *Node) ready() error {
	ctx := context.Background()
	info, err := n.Do(ctx, "INFO", "server")
	if err != nil {
		return err
	}
	if pid := line(text(info, nil), "process_id"); pid != strconv.Itoa(n.Pid()) {
		return fmt.Errorf("process %q answers", pid)
	}
	if _, err := n.Do(ctx, "PING"); err != nil { // it is still loading its data
		return err
	}
	if v := line(text(info, nil), "valkey_version"); v != "" { // beside what it is compatible with
		n.Version = "Valkey " + v
		return nil
	}
	n.Version = "Redis " + line(text(info, nil), "redis_version")
	return nil
}

// Told returns a line of a section of INFO, empty if there is none.
func (n *Node) Told(ctx context.Context, section, name string) string {
	return line(text(n.Do(ctx, "INFO", section)), name)
}

// line returns what follows a name in lines of an answer, empty if nothing does.
func line(lines, name string) string {
	for line := range strings.Lines(lines) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// do sends a command whose answer is that it was done.
func (n *Node) do(ctx context.Context, words ...any) error {
	if _, err := n.Do(ctx, words...); err != nil {
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

// Revive starts those again that were killed, see [Server.Revive].
func (s Nodes) Revive(ctx context.Context) error {
	return s.each(func(n *Node) error { return n.Revive(ctx) })
}

// Restart kills all and starts them again, as if at once.
func (s Nodes) Restart(ctx context.Context) error { return errors.Join(s.Kill(), s.Revive(ctx)) }

// Stop pauses all that were not killed.
func (s Nodes) Stop() error { return s.alive().each((*Node).Stop) }

// Cont lets all go on that were not killed.
func (s Nodes) Cont() error { return s.alive().each((*Node).Cont) }

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
