package zklock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/zklock"
)

// TestRefusedRightsAreAPermanentError asks with the rights of nobody.
func TestRefusedRightsAreAPermanentError(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, warm)
	owner := open(t, zklock.New([]string{s.Addr()}, zklock.WithAuth("digest", []byte("locks:secret")), zklock.WithACL(digest()...)))
	if err := owner.Ping(t.Context()); err != nil {
		t.Fatalf("ping with all rights: %v", err)
	}
	g := owner.take("k", hold)
	other := open(t, zklock.New([]string{s.Addr()}))
	var permanent *driver.PermanentError
	if err := other.Ping(t.Context()); !errors.As(err, &permanent) {
		t.Errorf("ping without rights: %v, want a PermanentError", err)
	}
	if _, err := other.Acquire(t.Context(), request("k", hold)); !errors.As(err, &permanent) {
		t.Errorf("acquire without rights: %v, want a PermanentError", err)
	}
	owner.drop(g)
}

// TestRefusedCredentialsAreForgottenWhenTheyHaveBeenPutRight sends credentials of a kind that the
// server does not know, until they are put right.
func TestRefusedCredentialsAreForgottenWhenTheyHaveBeenPutRight(t *testing.T) {
	t.Parallel()
	var right atomic.Bool
	p := open(t, zklock.New([]string{zktest.Start(t, warm).Addr()}, zklock.WithAuth("digest", []byte("locks:secret")),
		zklock.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &misnaming{conn, &right}, err
		})))
	var permanent *driver.PermanentError
	if err := p.Ping(t.Context()); !errors.As(err, &permanent) {
		t.Fatalf("ping with credentials that the server refuses: %v, want a PermanentError", err)
	}
	right.Store(true)
	eventually(t, "an answer to who has the right credentials", func() bool { return p.Ping(t.Context()) == nil })
	p.drop(p.take("k", hold))
}

// misnaming is a connection that gives credentials another kind, until right is set.
type misnaming struct {
	net.Conn
	right *atomic.Bool
}

func (c *misnaming) Write(b []byte) (int, error) {
	if !c.right.Load() {
		b = bytes.Replace(b, []byte("digest"), []byte("refuse"), 1)
	}
	return c.Conn.Write(b)
}

func TestWrongAddressesAreAnErrorOfOpen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ server, cure string }{
		{"", "use host:port"},
		{"  ", "use host:port"},
		{" zk1:2181", "use host:port"},
		{"zk1 :2181", "use host:port"},
		{"zk1:2181/chroot", "WithRoot"},
		{"zk1/chroot", "WithRoot"},
		{"zk1:2181,zk2:2181", "give each of them alone"},
		{"zk://zk1:2181", "use host:port"},
		{"zk1:", "1 to 65535"},
		{"zk1:0", "1 to 65535"},
		{"zk1:70000", "1 to 65535"},
		{":2181", "no host:port"},
		{"::1", "in brackets"},
		{"[::1]", "in brackets"},
	} {
		_, err := zklock.New([]string{"zk1:2181", tt.server}).Open(driver.Config{Sink: &process{}, StoreTimeout: storeTimeout})
		if err == nil || !strings.Contains(err.Error(), "servers[1]") || !strings.Contains(err.Error(), tt.cure) {
			t.Errorf("open with the server %q: %v, want an error with %q", tt.server, err, tt.cure)
		}
	}
	for _, server := range []string{"zk1", "zk1:2181", "zk_1.shop.local:1", "10.0.0.1", "10.0.0.1:65535", "[::1]:2181", "[fe80::1%eth0]:2181"} {
		open(t, zklock.New([]string{server}))
	}
}

// A driver that only says that nobody has answered sends its user to look for the wrong fault.
func TestReasonWhyThereIsNoSessionIsTold(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("no route to host")
	for _, tt := range []struct {
		why  string
		dial func(context.Context, string, string) (net.Conn, error)
		want error
	}{
		{"no connection", func(context.Context, string, string) (net.Conn, error) { return nil, unreachable }, unreachable},
		{"a server that ends each connection", func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				_, _ = server.Read(make([]byte, 1<<10)) // the handshake
				_ = server.Close()
			}()
			return client, nil
		}, io.EOF},
	} {
		p := openWith(t, zklock.New([]string{"zk1:2181"}, zklock.WithDialer(tt.dial)), 2*time.Second)
		began := time.Now()
		_, err := p.Acquire(t.Context(), request("k", hold))
		if !errors.Is(err, tt.want) {
			t.Errorf("acquire with %s: %v after %v, want %q", tt.why, err, time.Since(began), tt.want)
		}
	}
}
