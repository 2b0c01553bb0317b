package main

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/hiccups"
)

func TestLinkDelaysEachWayAndKeepsOrder(t *testing.T) {
	const delay = 5 * time.Millisecond
	client := across(t, delay)
	lines := bufio.NewReader(client)
	for _, line := range []string{"one\n", "two\n"} {
		began := time.Now()
		if _, err := io.WriteString(client, line); err != nil {
			t.Fatal(err)
		}
		got, err := lines.ReadString('\n')
		if err != nil || got != line {
			t.Fatalf("%q came back as %q, %v", line, got, err)
		}
		if took := time.Since(began); took < 2*delay {
			t.Errorf("there and back took %v; want at least %v", took, 2*delay)
		}
	}
}

func TestLinkCarriesWhatIsUnderWayTogether(t *testing.T) {
	const delay, pieces = 50 * time.Millisecond, 20
	client, machine := across(t, delay), hiccups.Start(t)
	began := time.Now()
	for range pieces {
		if _, err := io.WriteString(client, "a line\n"); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewReader(client)
	for range pieces {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > machine.Allow(pieces*delay) {
		t.Errorf("%d lines took %v: one after the other", pieces, took)
	}
}

// across returns a connection to an echo that is so far off each way.
func across(t *testing.T, delay time.Duration) net.Conn {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := echo.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}()
	link, err := newLink(echo.Addr().String(), delay, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _, _, _ = link.Close(), client.Close(), echo.Close(), <-done
	})
	return client
}
