package ensemble

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

// StartEtcd starts a cluster of n etcd servers with their data below a folder. The error is
// an [exec.ErrNotFound] if there is no etcd.
func StartEtcd(ctx context.Context, folder string, n int) ([]*Member, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w; Debian has it in the package etcd-server", err)
	}
	return start(ctx, folder, n, 2, func(m *Member, i int, ports []string) error {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("m%d=http://127.0.0.1:%s", i, ports[2*i+1]))
		}
		name, peer, _ := strings.Cut(all[i], "=")
		m.Addr = "127.0.0.1:" + ports[2*i]
		m.Addrs = []string{m.Addr, strings.TrimPrefix(peer, "http://")}
		m.Cmd = exec.Command(path,
			"--name", name, "--data-dir", m.folder+"/data",
			"--listen-client-urls", "http://"+m.Addr, "--advertise-client-urls", "http://"+m.Addr,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(all, ","), "--initial-cluster-token", folder+ports[0],
			"--log-level", "error", "--logger", "zap")
		m.Cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // needed there, and ignored elsewhere
		m.Ready = func() error {
			if _, err := get("http://" + m.Addr + "/health"); err != nil { // which needs a leader
				return err
			}
			return m.Answers()
		}
		return nil
	})
}

// Answers returns why an etcd server does not answer, be it without a leader.
func (m *Member) Answers() error {
	said, err := get("http://" + m.Addr + "/version")
	if err != nil {
		return err
	}
	_, said, _ = strings.Cut(said, `"etcdserver":"`)
	version, err := versionIn(said)
	if err != nil {
		return err
	}
	m.Version = "etcd " + version
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
