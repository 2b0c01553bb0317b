// Package redisserver starts the Redis servers that the examples are tested on.
package redisserver

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Start starts a server without persistence on a Unix socket, which it returns. It ends with
// the test. Without redis-server the test is skipped, or fails if the environment says
// LOCKAROUND_REQUIRE_SERVERS=1.
func Start(t testing.TB) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // short, as a socket's path has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "socket")
	said, ok := Run(t, "ready to accept connections", "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	if !ok {
		t.Fatalf("redis-server ended at once:\n%s", said)
	}
	return socket
}

// Run starts redis-server with arguments of the caller's, and is like [Start] otherwise. It
// returns when the server has said that it is ready, in lower case, or has ended: then what it
// said, and false.
func Run(t testing.TB, ready string, args ...string) (said string, ok bool) {
	t.Helper()
	server, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	cmd := exec.Command(server, args...)
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for !ok && lines.Scan() {
		said += lines.Text() + "\n"
		ok = strings.Contains(strings.ToLower(lines.Text()), ready)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-drained
		_ = cmd.Wait() // reports the kill
	})
	return said, ok
}
