package servers

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

// StartZooKeeper starts n servers, an ensemble if it is more than one. Their arguments are lines of
// zoo.cfg, and properties of the Java machine: "tickTime=100", "-Dname=value". The error is an
// [exec.ErrNotFound] if there is no Java or no ZooKeeper.
func StartZooKeeper(ctx context.Context, n int, o Options) ([]*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, missing("java", "default-jre-headless", err)
	}
	from := classes()
	if _, err := os.Stat(filepath.Join(from, "zookeeper.jar")); err != nil {
		return nil, missing("ZooKeeper", "zookeeper", err)
	}
	var properties, settings []string
	for _, arg := range o.Args {
		if strings.HasPrefix(arg, "-") {
			properties = append(properties, arg)
		} else {
			settings = append(settings, arg)
		}
	}
	return o.start(ctx, "zookeeper", n, 3, func(s *Server, i int, ports []string) error {
		config := strings.Join(settings, "\n") + "\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n" +
			"clientPortAddress=127.0.0.1\nclientPort=" + s.ports[0] + "\ndataDir=" + s.folder + "\n"
		for i := 0; i < n && n > 1; i++ {
			config += fmt.Sprintf("server.%d=127.0.0.1:%s:%s\n", i+1, ports[3*i+1], ports[3*i+2])
		}
		file := filepath.Join(s.folder, "zoo.cfg")
		// What a killed process has written stays, so that nothing is lost without forcing it
		// to the disk.
		s.Cmd = exec.Command(java, slices.Concat([]string{
			"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no",
			"-Dzookeeper.jmx.log4j.disable=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		}, properties, []string{"-cp", from + "/lib/*:" + from + "/zookeeper.jar:" + from + "/slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file})...)
		s.Ready = s.servesAsZooKeeper
		return errors.Join(os.WriteFile(file, []byte(config), 0o600),
			os.WriteFile(filepath.Join(s.folder, "myid"), []byte(fmt.Sprint(i+1)), 0o600))
	})
}

// servesAsZooKeeper returns why a ZooKeeper server does not serve its folder. Mode and version come from one
// answer: the one before it may be of a server that did not serve yet.
func (s *Server) servesAsZooKeeper() error {
	status, settings := s.ask("srvr"), s.ask("conf")
	if mode(status) == "" || !strings.Contains(settings, "dataDir="+s.folder+string(filepath.Separator)) {
		return fmt.Errorf("it says %q, or serves another folder", status)
	}
	version, err := versionIn(strings.TrimPrefix(status, "Zookeeper version: "))
	if err != nil {
		return err
	}
	s.Version = "ZooKeeper " + version
	return nil
}

// Mode returns what a ZooKeeper server is now: standalone, leader, follower, or "" if it does not
// serve.
func (s *Server) Mode() string { return mode(s.ask("srvr")) }

func mode(status string) string {
	_, mode, _ := strings.Cut(status, "\nMode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
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
