package asynqlock_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// startRedis starts a server that ends with the test, and returns its socket.
func startRedis(t *testing.T) string {
	t.Helper()
	server, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatal("redis-server is not installed, and LOCKAROUND_REQUIRE_SERVERS=1 asks for it")
		}
		t.Skip("redis-server is not installed")
	}
	socket := filepath.Join(t.TempDir(), "redis")
	cmd := exec.Command(server, "--port", "0", "--unixsocket", socket, "--dir", t.TempDir(), "--save", "")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var log strings.Builder
	for lines.Scan() && !strings.Contains(lines.Text(), "ready to accept connections") {
		log.WriteString(lines.Text() + "\n")
	}
	if lines.Text() == "" {
		t.Fatalf("redis-server did not start: %v\n%s", cmd.Wait(), log.String())
	}
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, out) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
	})
	return socket
}
