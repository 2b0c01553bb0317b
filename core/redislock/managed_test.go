package redislock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
)

// Two processes hand a key to and fro on servers as providers offer them. Lost pushes are the matter of
// TestLostPushDelaysAWaiterByWakeAtMost.
func TestLocksOnAManagedServer(t *testing.T) {
	t.Parallel()
	without := func(commands ...string) (args []string) {
		for _, c := range commands {
			args = append(args, "--rename-command", c, "")
		}
		return args
	}
	forget := func(t *testing.T, s *testservers.Server) {
		if answer, err := s.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(answer, err)
		}
	}
	direct := func(_ *testing.T, s *testservers.Server) string { return s.Addr() }
	for name, test := range map[string]struct {
		args   []string
		behind func(*testing.T, *testservers.Server) string // what stands before the server
		client func(*redis.Options)
		before func(*testing.T, *testservers.Server) // each step
	}{
		"no administration":                        {args: without("CONFIG", "DEBUG", "MONITOR", "SHUTDOWN", "SAVE", "BGSAVE", "KEYS", "MODULE", "LATENCY", "SLOWLOG", "MEMORY")},
		"nothing but what the documentation names": {args: without("CONFIG", "CLIENT", "HELLO", "COMMAND", "SCAN", "SCRIPT", "WAIT", "PUBSUB", "WATCH", "MULTI", "OBJECT", "SORT")},
		"RESP2 alone":                              {args: without("HELLO")},
		"scripts are forgotten":                    {before: forget},
		"TLS": {behind: encrypted, client: func(o *redis.Options) {
			o.TLSConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate is of this test
		}},
		// Each session has a subscription beside the pool.
		"few connections": {args: []string{"--maxclients", "10"}, client: func(o *redis.Options) { o.PoolSize, o.MinIdleConns = 1, 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testservers.Redis(t, test.args...)
			if test.behind == nil {
				test.behind = direct
			}
			if test.client == nil {
				test.client = func(*redis.Options) {}
			}
			step := func() {
				if test.before != nil {
					test.before(t, server)
				}
			}
			if answer, err := server.Do("ACL", "SETUSER", "default", "-info", "-acl"); err != nil {
				t.Fatal(answer, err)
			}
			addr := test.behind(t, server)
			now, next := join(t, addr, test.client), join(t, addr, test.client)
			for _, p := range []*process{now, next} {
				if err := p.Ping(bounded(t)); err != nil {
					t.Fatalf("ping: %v", err)
				}
			}
			token := int64(0)
			for range 4 {
				step()
				g := now.take("k", lasting)
				if g.Token <= token {
					t.Errorf("token %d after %d", g.Token, token)
				}
				step()
				_, granted := next.queue("k", lasting)
				step()
				if r := now.renew(g, lasting); r.Err != nil {
					t.Fatalf("renewal: %v", r.Err)
				}
				step()
				now.release(g)
				o := await(t, granted)
				if o.err != nil {
					t.Fatal(o.err)
				}
				if token = o.Token; token <= g.Token {
					t.Errorf("token %d after %d", token, g.Token)
				}
				step()
				next.release(o.Grant)
				now, next = next, now
			}
		})
	}
}

// A server that has no connection to spare says so, and locks when it has one.
func TestServerWithoutAConnectionToSpareIsNamed(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t, "--maxclients", "4")
	var others []net.Conn
	var dial net.Dialer
	for limit := bounded(t); len(others) < 4; { // connections that are on their way out count, too
		c, err := dial.DialContext(limit, "tcp", server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(hang))
		answer := make([]byte, 7)
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			continue
		}
		if _, err := io.ReadFull(c, answer); err == nil && string(answer) == "+PONG\r\n" {
			others = append(others, c)
		}
	}
	p := join(t, server.Addr())
	if _, err := p.try("k", lasting); err == nil {
		t.Fatal("a key was locked without a connection")
	} else if got := err.Error(); !slices.ContainsFunc([]string{"max number of clients", "reset by peer", "broken pipe", "EOF"}, func(part string) bool { return strings.Contains(got, part) }) {
		t.Errorf("acquire: %v", err)
	}
	for _, c := range others[1:] {
		_ = c.Close()
	}
	eventually(t, "an acquisition once there are connections", func() bool {
		g, err := p.try("k", lasting)
		if err == nil {
			p.release(g)
		}
		return err == nil
	})
}

// encrypted ends TLS in front of a server.
func encrypted(t *testing.T, server *testservers.Server) (addr string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		end()
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := new(net.Dialer).DialContext(ctx, "tcp", server.Addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			closed := context.AfterFunc(ctx, func() { _, _ = client.Close(), to.Close() })
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_, _ = to.Close(), from.Close()
			}
			all.Go(func() { defer closed(); pass(to, client) })
			all.Go(func() { pass(client, to) })
		}
	})
	return l.Addr().String()
}
