package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// servers start what each library keeps its locks in, and return its address.
var servers = map[string]func(*testing.T) string{
	"redislock": startRedis,
	"redsync":   startRedis,
	"etcd":      startEtcd,
}

// startRedis starts a redis-server without persistence, which ends with the test.
func startRedis(t *testing.T) string {
	return start(t, "redis-server", func(ports []string) []string {
		return []string{"--bind", "127.0.0.1", "--port", ports[0], "--dir", t.TempDir(), "--save", "", "--appendonly", "no"}
	}, func(ctx context.Context, addr string) error {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		return errors.Join(rdb.Ping(ctx).Err(), rdb.Close())
	})
}

// startEtcd starts an etcd of one member, which ends with the test.
func startEtcd(t *testing.T) string {
	return start(t, "etcd", func(ports []string) []string {
		clients, peers := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
		return []string{
			"--data-dir", t.TempDir(), "--listen-client-urls", clients, "--advertise-client-urls", clients,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
			"--log-level", "error", "--logger", "zap",
		}
	}, func(ctx context.Context, addr string) error {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		_, err = client.Get(ctx, "ready")
		return errors.Join(err, client.Close())
	})
}

// start starts a server on free ports, and returns its address when it answers. A port may be
// taken by somebody else before the server has it: then it is started again on others.
func start(t *testing.T, name string, args func(ports []string) []string, answers func(context.Context, string) error) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("%s is required by LOCKAROUND_REQUIRE_SERVERS: %v", name, err)
		}
		t.Skipf("needs %s in PATH: %v", name, err)
	}
	var err error
	for range 3 {
		ports := freePorts(t, 2)
		cmd := exec.Command(name, args(ports)...)
		cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // etcd needs it there, and ignores it elsewhere
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // reports the kill
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended by itself
			<-ended
		})
		if err = await(t, ended, "127.0.0.1:"+ports[0], answers); err == nil {
			return "127.0.0.1:" + ports[0]
		}
	}
	t.Fatalf("start %s: %v", name, err)
	return ""
}

// await returns when the server answers, or why it does not.
func await(t *testing.T, ended <-chan struct{}, addr string, answers func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, 5*time.Second)
		err := answers(try, addr)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("it ended at once: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freePorts returns ports of 127.0.0.1 that nobody listens at.
func freePorts(t *testing.T, n int) (ports []string) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // when all are found, which differ then
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}
