package servers

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

const (
	notServing = "This ZooKeeper instance is not currently serving requests\n"
	serving    = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024-12-29 17:54 UTC\nMode: follower\nNode count: 5\n"
)

// startTalker is a server that gives one answer to srvr after the other, and keeps to the last.
func startTalker(t *testing.T, folder string, answers ...string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			word := make([]byte, 4)
			_, _ = io.ReadFull(conn, word)
			answer := "dataDir=" + folder + string(filepath.Separator) + "version-2\n"
			if string(word) == "srvr" {
				if answer = answers[0]; len(answers) > 1 {
					answers = answers[1:]
				}
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	return &Server{Addrs: []string{l.Addr().String()}, folder: folder}
}

func TestVersionIsThatOfAZooKeeperThatServes(t *testing.T) {
	m := startTalker(t, "/folder", notServing, serving)
	if err := m.servesAsZooKeeper(); err == nil || !strings.Contains(err.Error(), "not currently serving") {
		t.Errorf("a server that does not serve is ready: %v, version %q", err, m.Version)
	}
	if err := m.servesAsZooKeeper(); err != nil || m.Version != "ZooKeeper 3.8.0" {
		t.Errorf("a server that serves: %v, version %q", err, m.Version)
	}
}

func TestZooKeeperThatTellsNoVersionIsNotReady(t *testing.T) {
	m := startTalker(t, "/folder", "Zookeeper version: unknown, built on a day\nMode: follower\n")
	if err := m.servesAsZooKeeper(); err == nil || m.Version != "" {
		t.Errorf("error %v, version %q", err, m.Version)
	}
}

func TestZooKeeperOfAnotherFolderIsNotReady(t *testing.T) {
	m := startTalker(t, "/folder", serving)
	m.folder = "/fold"
	if err := m.servesAsZooKeeper(); err == nil {
		t.Error("it is taken for this one")
	}
}

func TestVersionIsThatOfAnEtcdThatTellsIt(t *testing.T) {
	status, body := http.StatusOK, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer s.Close()
	m := &Server{Addrs: []string{strings.TrimPrefix(s.URL, "http://")}}
	const right = `{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}`
	if body = right; m.answersAsEtcd() != nil || m.Version != "etcd 3.4.23" {
		t.Errorf("version %q", m.Version)
	}
	for _, body = range []string{`{}`, `{"etcdserver":"not_decided"}`, ""} {
		if err := m.answersAsEtcd(); err == nil || m.Version != "etcd 3.4.23" {
			t.Errorf("%q: error %v, version %q", body, err, m.Version)
		}
	}
	if status, body = http.StatusServiceUnavailable, right; m.answersAsEtcd() == nil {
		t.Error("an answer that is an error is none")
	}
}
