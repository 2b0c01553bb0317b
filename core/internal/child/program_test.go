package child_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/child"
)

// echoVariable makes this test binary a server that repeats what it is told, on the address
// that is the value.
const echoVariable = "LOCKAROUND_TEST_ECHO"

func TestMain(m *testing.M) {
	if addr := os.Getenv(echoVariable); addr != "" {
		echo(addr)
	}
	goleak.VerifyTestMain(m)
}

// echo has a thread for each processor, and none of them sleeps.
func echo(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var busy atomic.Int64
	for range 4 {
		go func() {
			for {
				busy.Add(1)
			}
		}()
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() { _, _ = io.Copy(conn, conn) }()
	}
}

func TestNoPortIsGivenAwayTwice(t *testing.T) {
	given := make(map[string]bool)
	for range 400 { // of 12,000: two would be the same nearly always
		port, err := child.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] {
			t.Fatalf("port %s was given away twice, the second time while its server might have been down", port)
		}
		given[port] = true
	}
}

func start(t *testing.T) (*child.Program, string) {
	t.Helper()
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), echoVariable+"="+addr)
	cmd.Stderr = os.Stderr
	p, err := child.Launch(cmd, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	err = p.Until("it to listen", func() bool {
		conn, err := net.Dial("tcp", addr)
		return err == nil && conn.Close() == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, addr
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What is sent after Stop stays unanswered, however busy the machine is: that is for how
// long one may look, and not how long it takes.
func TestStoppedProcessAnswersNothingThatWasSentAfterStop(t *testing.T) {
	p, addr := start(t)
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	for i := range 50 {
		must(t, p.Stop())
		asked := fmt.Sprintln("question", i)
		_, err := fmt.Fprint(conn, asked)
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		if b, err := answers.ReadByte(); err == nil {
			t.Fatalf("round %d: a stopped process said %q", i, b)
		}
		must(t, conn.SetReadDeadline(time.Time{}))
		must(t, p.Cont())
		if got, err := answers.ReadString('\n'); got != asked || err != nil {
			t.Fatalf("round %d: it goes on with %q, %v", i, got, err)
		}
	}
}

func TestKilledProcessHasLeftItsAddress(t *testing.T) {
	for range 5 {
		p, addr := start(t)
		must(t, p.Stop()) // which must not save it
		must(t, p.Kill())
		if p.Running() {
			t.Error("it runs")
		}
		l, err := net.Listen("tcp", addr)
		must(t, err)
		must(t, l.Close())
		must(t, p.Kill())
	}
}

// TestChildrenAreStoppedAndKilledWithTheirParent has a shell for a parent, as PostgreSQL has a
// process for each connection.
func TestChildrenAreStoppedAndKilledWithTheirParent(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("only Linux tells who a process's children are")
	}
	out, in, err := os.Pipe()
	must(t, err)
	defer func() { _ = out.Close() }()
	cmd := exec.Command("sh", "-c", `(while :; do echo x; done) & wait`)
	cmd.Stdout = in
	p, err := child.Launch(cmd)
	must(t, err)
	defer func() { must(t, p.Kill()) }()
	must(t, in.Close())
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n')
	must(t, err)
	must(t, p.Stop())
	for range 20 { // it may have filled the pipe before
		must(t, out.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		if _, err = io.Copy(io.Discard, out); err == nil {
			t.Fatal("its output has ended")
		}
	}
	if n, err := out.Read(make([]byte, 1)); n != 0 {
		t.Errorf("a child goes on after its parent was stopped: %v", err)
	}
	must(t, p.Cont())
	must(t, out.SetReadDeadline(time.Time{}))
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("a child does not go on: %v", err)
	}
	must(t, p.Kill())
	if _, err := io.Copy(io.Discard, out); err != nil { // who has the other end has ended
		t.Error(err)
	}
}

func TestProcessThatEndsTooEarlyIsSaid(t *testing.T) {
	p, err := child.Launch(exec.Command("false"))
	must(t, err)
	if err := p.Until("anything", func() bool { return false }); err == nil {
		t.Error("it waited for nothing")
	}
}
