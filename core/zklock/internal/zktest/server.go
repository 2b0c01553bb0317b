// Package zktest runs real ZooKeeper servers for tests, and a proxy that does to
// their connections what networks do.
package zktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/process"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

// Debian's package zookeeper has the server here. Its manifest names what it needs,
// but for something that writes messages.
const (
	serverJar = "/usr/share/java/zookeeper.jar"
	logJar    = "/usr/share/java/slf4j-simple.jar"
)

// Server is a ZooKeeper server of its own, on a free port of 127.0.0.1, with ticks of
// 100 ms. It ends with the test that started it. Its methods fail the test when they
// cannot do what they say, and are for one goroutine.
type Server struct {
	daemon.Test
	dir  string
	port string
}

// Start starts a server and returns when it answers.
//
// If there is no ZooKeeper the test is skipped, or fails if the environment says
// LOCKAROUND_REQUIRE_SERVERS=1.
func Start(t testing.TB) *Server {
	t.Helper()
	need(t)
	s := newServer(t)
	// A free port may be taken by somebody else before the server has it.
	var err error
	for range 5 {
		s.configure(freePorts(t, 1)[0], "")
		if err = s.Start(context.Background()); err == nil {
			return s
		}
	}
	t.Fatalf("start ZooKeeper: %v", err)
	return nil
}

// StartEnsemble starts an ensemble of n servers and returns when all serve.
func StartEnsemble(t testing.TB, n int) []*Server {
	t.Helper()
	need(t)
	ports := freePorts(t, 3*n)
	var peers strings.Builder
	for i := range n {
		fmt.Fprintf(&peers, "server.%d=127.0.0.1:%s:%s\n", i+1, ports[3*i], ports[3*i+1])
	}
	var all []*Server
	for i := range n {
		s := newServer(t)
		s.configure(ports[3*i+2], peers.String())
		s.write("myid", fmt.Sprint(i+1))
		if err := s.Spawn(); err != nil {
			t.Fatalf("start ZooKeeper: %v", err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		if err := s.Await(context.Background(), s.Ready); err != nil {
			t.Fatalf("start an ensemble: %v", err)
		}
	}
	return all
}

func need(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath("java")
	if err == nil {
		_, err = os.Stat(serverJar)
	}
	if err != nil {
		daemon.Missing(t, "Debian's package zookeeper, and java", err)
	}
}

func newServer(t testing.TB) *Server {
	s := &Server{Test: daemon.Test{Daemon: &daemon.Daemon{}, T: t}, dir: t.TempDir()}
	t.Cleanup(s.Kill)
	return s
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// Mode returns what the server is: standalone, leader, follower, or "" if it does not
// serve.
func (s *Server) Mode() string {
	for line := range strings.Lines(s.ask("srvr")) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// configure writes what a server needs to know, and how it is started.
func (s *Server) configure(port, peers string) {
	s.port = port
	config := filepath.Join(s.dir, "zoo.cfg")
	s.write("zoo.cfg", "tickTime=100\ninitLimit=100\nsyncLimit=20\nminSessionTimeout=200\nmaxSessionTimeout=1000000\n"+
		"maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\nclientPortAddress=127.0.0.1\n"+
		"clientPort="+s.port+"\ndataDir="+s.dir+"\n"+peers)
	// What a killed process has written stays, so that nothing is lost without
	// forcing it to the disk. Empty containers are looked for every second. Who has said
	// nothing yet is not sent away: whether the driver gives up a silent handshake is seen.
	cmd := exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=1000", "-Dzookeeper.nio.sessionlessCnxnTimeout=600000", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", serverJar+":"+logJar,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	*s.Daemon = daemon.Daemon{Cmd: cmd, Log: filepath.Join(s.dir, "out"), Addrs: []string{s.Addr()}, Ready: s.ready}
}

func (s *Server) write(name, content string) {
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
		s.T.Fatal(err)
	}
}

// ready asks whether the server serves, and is not somebody else's on the same port.
func (s *Server) ready() error {
	if s.Mode() == "" || !strings.Contains(s.ask("conf"), "dataDir="+s.dir+string(filepath.Separator)) {
		return errors.New("it does not serve")
	}
	return warm(s.Addr())
}

// ask sends a word of four letters and returns the answer, "" if there is none.
func (s *Server) ask(word string) string {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(conn, word); err != nil {
		return ""
	}
	answer, _ := io.ReadAll(conn) // what came before an error is no answer that counts
	return string(answer)
}

func freePorts(t testing.TB, n int) []string {
	t.Helper()
	ports, err := process.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}
