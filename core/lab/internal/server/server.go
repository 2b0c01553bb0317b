// Package server starts the stores that the laboratory measures, each as a process of
// its own.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/internal/process"
	"github.com/lockaround/lockaround/core/internal/redisserver"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

// Kind is the program of a server.
type Kind string

// The kinds.
const (
	Redis     Kind = "redis"
	Etcd      Kind = "etcd"
	Postgres  Kind = "postgres"
	MariaDB   Kind = "mariadb"
	ZooKeeper Kind = "zookeeper"
)

// Server is one that this program has started, in a folder of its own and on ports of
// 127.0.0.1 that were free. An ensemble is one that has members, and no process besides.
type Server struct {
	Addr    string // empty for an ensemble
	Version string
	Wipe    func(context.Context) error // empties it; nil if it cannot be
	Members []*Server
	Jump    func(by time.Duration) error // sets the wall clock of a Redis server; see [redisserver.Node.Jump]
	folder  string
	leads   func() bool    // whether it is the leader of its ensemble
	daemon  *daemon.Daemon // nil for an ensemble
	closers []io.Closer
}

// Start returns when the server answers. The error is an [exec.ErrNotFound] if its program
// is not installed.
func Start(ctx context.Context, kind Kind) (*Server, error) {
	if kind == Redis {
		return startRedis(ctx, false)
	}
	start := map[Kind]func(context.Context, string) (*Server, error){
		Etcd: startEtcd, Postgres: startDatabase(Postgres), MariaDB: startDatabase(MariaDB), ZooKeeper: startZooKeeper,
	}[kind]
	return inFolder(func(folder string) (*Server, error) { return start(ctx, folder) })
}

// inFolder makes a folder for a server, and starts it there.
func inFolder(start func(folder string) (*Server, error)) (*Server, error) {
	var err error
	for range 3 { // a free port may be somebody else's by the time it is used
		var folder string
		if folder, err = os.MkdirTemp("", "lockaround-lab-"); err != nil {
			return nil, err
		}
		var s *Server
		if s, err = start(folder); err == nil {
			s.folder = folder
			return s, nil
		}
		if rerr := os.RemoveAll(folder); rerr != nil {
			return nil, errors.Join(err, rerr)
		}
		if errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	return nil, err
}

// Close ends the server and removes its folder.
func (s *Server) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, s.retire(), os.RemoveAll(s.folder))...)
}

func startRedis(ctx context.Context, clock bool) (*Server, error) {
	n, err := redisserver.Start(ctx, redisserver.Options{Clock: clock})
	if err != nil {
		return nil, err
	}
	return &Server{
		Addr: n.Addr(), Version: n.Version, Wipe: func(ctx context.Context) error { return n.Client.FlushAll(ctx).Err() },
		Jump: n.Jump, daemon: n.Daemon, closers: []io.Closer{n},
	}, nil
}

func startEtcd(ctx context.Context, folder string) (*Server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	among, err := freeAddr()
	if err != nil {
		return nil, err
	}
	s, err := program(folder, "etcd", "--name", "lab", "--data-dir", filepath.Join(folder, "data"),
		"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
		"--listen-peer-urls", "http://"+among, "--initial-advertise-peer-urls", "http://"+among,
		"--initial-cluster", "lab=http://"+among, "--log-level", "error")
	if err != nil {
		return nil, err
	}
	s.Addr = addr
	s.Wipe = func(context.Context) error { return nil } // keys go with the sessions of a trial
	s.daemon.Ready = func() error {
		if _, err := get(ctx, "http://"+addr+"/health"); err != nil {
			return err
		}
		version, err := get(ctx, "http://"+addr+"/version")
		_, version, _ = strings.Cut(version, `"etcdserver":"`)
		version, _, _ = strings.Cut(version, `"`)
		s.Version = "etcd " + version
		return err
	}
	if err := s.daemon.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// packages are Debian's, by program.
var packages = map[string]string{
	"etcd": "etcd-server", "PostgreSQL": "postgresql", "MariaDB": "mariadb-server-core",
	"java": "default-jre-headless", "ZooKeeper": "zookeeper",
}

// missing is why a program does not start that is not installed.
func missing(program string, err error) error {
	return fmt.Errorf("start %s: %w; Debian has it in the package %s", program, err, packages[program])
}

// program is a server that has not started, whose output goes to a file in folder.
func program(folder, name string, args ...string) (*Server, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, missing(name, err)
	}
	return &Server{folder: folder, daemon: daemonIn(folder, exec.Command(path, args...))}, nil
}

func daemonIn(folder string, cmd *exec.Cmd) *daemon.Daemon {
	return &daemon.Daemon{Cmd: cmd, Log: filepath.Join(folder, "log")}
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(body), err
}

func freeAddr() (string, error) {
	port, err := process.FreePort()
	return net.JoinHostPort("127.0.0.1", port), err
}
