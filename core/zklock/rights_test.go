package zklock_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

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
