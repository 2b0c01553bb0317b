package ensemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// classes is the folder of ZooKeeper's classes: LOCKAROUND_ZOOKEEPER, or where Debian's package zookeeper
// has them. The manifest there names what the server needs, but for something that writes messages. What
// is in the folder lib comes first.
func classes() string { return cmp.Or(os.Getenv("LOCKAROUND_ZOOKEEPER"), "/usr/share/java") }

// ZooKeeper is how servers are set up.
type ZooKeeper struct {
	Settings   string                  // lines of zoo.cfg: times, in ticks
	Properties []string                // of the Java machine: "-Dname=value"
	Warm       func(addr string) error // is asked besides whether a server is ready; nil is yes
}

// Start starts n servers with their data below a folder, an ensemble if it is more than one.
// The error is an [exec.ErrNotFound] if there is no Java or no ZooKeeper.
func (z ZooKeeper) Start(ctx context.Context, folder string, n int) ([]*Member, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("start java: %w; Debian has it in the package default-jre-headless", err)
	}
	from := classes()
	if _, err := os.Stat(filepath.Join(from, "zookeeper.jar")); err != nil {
		return nil, fmt.Errorf("start ZooKeeper: %w; Debian has it in the package zookeeper", errors.Join(err, exec.ErrNotFound))
	}
	return start(ctx, folder, n, 3, func(m *Member, i int, ports []string) error {
		config := z.Settings + "\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n" +
			"clientPortAddress=127.0.0.1\nclientPort=" + ports[3*i+2] + "\ndataDir=" + m.folder + "\n"
		for i := 0; i < n && n > 1; i++ {
			config += fmt.Sprintf("server.%d=127.0.0.1:%s:%s\n", i+1, ports[3*i], ports[3*i+1])
		}
		m.Addr = net.JoinHostPort("127.0.0.1", ports[3*i+2])
		m.Addrs = []string{m.Addr}
		file := filepath.Join(m.folder, "zoo.cfg")
		// What a killed process has written stays, so that nothing is lost without forcing it
		// to the disk.
		m.Cmd = exec.Command(java, slices.Concat([]string{
			"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no",
			"-Dzookeeper.jmx.log4j.disable=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		}, z.Properties, []string{"-cp", from + "/lib/*:" + from + "/zookeeper.jar:" + from + "/slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file})...)
		m.Ready = func() error {
			if err := m.serves(); err != nil || z.Warm == nil {
				return err
			}
			return z.Warm(m.Addr)
		}
		return errors.Join(os.WriteFile(file, []byte(config), 0o600),
			os.WriteFile(filepath.Join(m.folder, "myid"), []byte(fmt.Sprint(i+1)), 0o600))
	})
}

// serves returns why a ZooKeeper server does not serve its folder. Mode and version come from one
// answer: the one before it may be of a server that did not serve yet.
func (m *Member) serves() error {
	status, settings := m.ask("srvr"), m.ask("conf")
	if mode(status) == "" || !strings.Contains(settings, "dataDir="+m.folder+string(filepath.Separator)) {
		return fmt.Errorf("it says %q, or serves another folder", status)
	}
	version, err := versionIn(strings.TrimPrefix(status, "Zookeeper version: "))
	if err != nil {
		return err
	}
	m.Version = "ZooKeeper " + version
	return nil
}

// Mode returns what a ZooKeeper server is: standalone, leader, follower, or "" if it does not
// serve.
func (m *Member) Mode() string { return mode(m.ask("srvr")) }

func mode(status string) string {
	_, mode, _ := strings.Cut(status, "\nMode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// ask sends a word of four letters and returns the answer, "" if there is none.
func (m *Member) ask(word string) string {
	conn, err := net.DialTimeout("tcp", m.Addr, time.Second)
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
