package servers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// StartEtcd starts a cluster of n etcd servers. The error is an [exec.ErrNotFound] if there is no etcd.
func StartEtcd(ctx context.Context, n int, o Options) ([]*Server, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return nil, missing("etcd", "etcd-server", err)
	}
	return o.start(ctx, "etcd", n, 2, func(s *Server, i int, ports []string) error {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("m%d=http://127.0.0.1:%s", i, ports[2*i+1]))
		}
		name, peer, _ := strings.Cut(all[i], "=")
		s.Addrs = append(s.Addrs, strings.TrimPrefix(peer, "http://"))
		s.Cmd = exec.Command(path, append([]string{
			"--name", name, "--data-dir", s.folder + "/data",
			"--listen-client-urls", "http://" + s.Addr(), "--advertise-client-urls", "http://" + s.Addr(),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(all, ","), "--initial-cluster-token", fmt.Sprint(os.Getpid(), ports),
			"--log-level", "error", "--logger", "zap",
		}, o.Args...)...)
		s.Cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=arm64"} // needed there, and ignored elsewhere
		s.Answers = s.answersAsEtcd
		s.Ready = func() error {
			if _, err := get("http://" + s.Addr() + "/health"); err != nil { // which needs a leader
				return err
			}
			return s.Answers()
		}
		return nil
	})
}

// answersAsEtcd returns why an etcd server does not answer, be it without a leader.
func (s *Server) answersAsEtcd() error {
	said, err := get("http://" + s.Addr() + "/version")
	if err != nil {
		return err
	}
	_, said, _ = strings.Cut(said, `"etcdserver":"`)
	version, err := versionIn(said)
	if err != nil {
		return err
	}
	s.Version = "etcd " + version
	return nil
}

func get(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
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
