package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startRedis starts a redis-server of the test's own and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatal("redis-server is not installed, and LOCKAROUND_REQUIRE_SERVERS=1 asks for it")
		}
		t.Skip("redis-server is not installed")
	}
	// Somebody may take a free port before the server does: then another one.
	for range 5 {
		if addr, ok := startRedisOn(t, program, freeAddr(t)); ok {
			return addr
		}
	}
	t.Fatal("redis-server did not start on any of 5 ports")
	return ""
}

func startRedisOn(t *testing.T, program, addr string) (string, bool) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	log, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			drained := make(chan struct{})
			go func() { defer close(drained); _, _ = io.Copy(io.Discard, log) }()
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-drained
				_ = cmd.Wait() // killed, which Wait reports
			})
			return addr, true
		}
	}
	_ = cmd.Wait() // it ended by itself: the port was taken
	return "", false
}

// freeAddr returns a loopback address that nobody listened on a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
