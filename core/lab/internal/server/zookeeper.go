package server

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
	"time"

	"github.com/lockaround/lockaround/core/internal/process"
)

// Debian's package has the server here. Its manifest names what it needs, but for
// something that writes messages.
const (
	zookeeperJar = "/usr/share/java/zookeeper.jar"
	messagesJar  = "/usr/share/java/slf4j-simple.jar"
)

// ensemble is how many servers there are, so that one can fail.
const ensemble = 3

// startZooKeeper starts an ensemble.
func startZooKeeper(ctx context.Context, folder string) (*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, missing("java", err)
	}
	if _, err := os.Stat(zookeeperJar); err != nil {
		return nil, missing("ZooKeeper", errors.Join(err, exec.ErrNotFound))
	}
	ports, err := process.FreePorts(3 * ensemble)
	if err != nil {
		return nil, err
	}
	var peers strings.Builder
	for i := range ensemble {
		fmt.Fprintf(&peers, "server.%d=127.0.0.1:%s:%s\n", i+1, ports[3*i], ports[3*i+1])
	}
	s := &Server{}
	for i := range ensemble {
		m, err := member(java, filepath.Join(folder, fmt.Sprint(i+1)), i+1, ports[3*i+2], peers.String())
		if err == nil {
			s.Members = append(s.Members, m)
			err = m.daemon.Spawn()
		}
		if err != nil {
			s.Kill()
			return nil, err
		}
	}
	for _, m := range s.Members {
		if err := m.daemon.Await(ctx, m.daemon.Ready); err != nil {
			s.Kill()
			return nil, err
		}
	}
	s.Version = s.Members[0].Version
	return s, nil
}

// member is one of an ensemble, which has not started. A tick is 200 ms: the others elect
// a new leader when they have not heard from theirs for a second.
func member(java, folder string, id int, port, peers string) (*Server, error) {
	m := &Server{Addr: net.JoinHostPort("127.0.0.1", port), folder: folder, daemon: daemonIn(folder, zookeeperIn(java, folder))}
	config := "tickTime=200\ninitLimit=50\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n" +
		"4lw.commands.whitelist=*\nclientPortAddress=127.0.0.1\nclientPort=" + port + "\ndataDir=" + folder + "\n" + peers
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "zoo.cfg"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	m.daemon.Ready = func() error {
		status, err := m.ask("srvr")
		if err != nil {
			return err
		}
		m.Version = "ZooKeeper " + strings.TrimPrefix(strings.SplitN(status, ",", 2)[0], "Zookeeper version: ")
		settings, err := m.ask("conf")
		if err == nil && !(strings.Contains(status, "\nMode: ") && strings.Contains(settings, "dataDir="+folder+"/")) {
			err = fmt.Errorf("it says %s, or serves another folder", status)
		}
		return err
	}
	m.leads = func() bool {
		status, err := m.ask("srvr")
		return err == nil && strings.Contains(status, "\nMode: leader")
	}
	return m, os.WriteFile(filepath.Join(folder, "myid"), []byte(fmt.Sprint(id)), 0o600)
}

// zookeeperIn is the server of a folder. What a process that was killed has written stays,
// so that nothing is lost without forcing it to the disk.
func zookeeperIn(java, folder string) *exec.Cmd {
	return exec.Command(java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.jmx.log4j.disable=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", zookeeperJar+":"+messagesJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(folder, "zoo.cfg"))
}

// ask sends a word of four letters and returns the answer.
func (s *Server) ask(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}
