package etcdlock_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

// authenticated has a server ask for passwords, which are all "secret".
func authenticated(t *testing.T, server *testservers.Server) {
	t.Helper()
	root := etcdtest.Client(t, server.Addr())
	ctx := within(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	end := clientv3.GetPrefixRangeEnd(etcdlock.KeyPrefix)
	must(root.UserAdd(ctx, "root", "secret"))
	must(root.UserGrantRole(ctx, "root", "root"))
	for role, allowed := range map[string]clientv3.PermissionType{
		"locks":  clientv3.PermissionType(clientv3.PermReadWrite),
		"reader": clientv3.PermissionType(clientv3.PermRead),
	} {
		must(root.RoleAdd(ctx, role))
		must(root.RoleGrantPermission(ctx, role, etcdlock.KeyPrefix, end, allowed))
		must(root.UserAdd(ctx, role, "secret"))
		must(root.UserGrantRole(ctx, role, role))
	}
	must(root.UserAdd(ctx, "nobody", "secret"))
	must(root.AuthEnable(ctx))
}

// as opens a session of a user; "" is one without a password.
func as(t *testing.T, user, addr string) *process {
	t.Helper()
	config := clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()}
	if user != "" {
		config.Username, config.Password = user, "secret"
	}
	c, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	etcdlock.KeepLoggedIn(c)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return open(t, etcdlock.New(c))
}

func TestPingFindsOutWhatARoleLacks(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	authenticated(t, server)
	ctx := within(t)
	as := func(user string) *process { return as(t, user, server.Addr()) }
	for _, user := range []string{"reader", "nobody", ""} {
		refused := new(driver.PermanentError)
		if err := as(user).Ping(ctx); !errors.As(err, &refused) {
			t.Errorf("ping as %q returned %v, not a *PermanentError", user, err)
		}
		if _, err := as(user).Acquire(ctx, request("k", long)); !errors.As(err, &refused) {
			t.Errorf("acquire as %q returned %v, not a *PermanentError", user, err)
		}
	}
	p, q := as("locks"), as("locks")
	if err := p.Ping(ctx); err != nil {
		t.Errorf("ping with the rights that locks need: %v", err)
	}
	g := p.take("k", long)
	w := q.queue(ctx, "k", long)
	if out := p.renew(g, 2*long); out.Err != nil || !out.Contended {
		t.Errorf("renewal with the rights that locks need: %+v", out)
	}
	if st, err := q.Inspect(ctx, "k"); err != nil || !st.Held || st.Waiting != 1 {
		t.Errorf("inspect with the rights that locks need: %+v, %v", st, err)
	}
	p.drop(g)
	g = w.granted(t)
	if err := p.Oust(ctx, "k", g.Token); err != nil {
		t.Errorf("oust with the rights that locks need: %v", err)
	}
	receive(t, q.event(q.lost, g.ID), "Sink.Lost")
}

const methodAuthenticate = "/etcdserverpb.Auth/Authenticate"

func TestRenewalsCheckNoPasswords(t *testing.T) {
	const leases = 10
	used := map[string][]time.Duration{}
	for _, user := range []string{"", "locks"} {
		server := testservers.Etcd(t)
		if user != "" {
			authenticated(t, server)
		}
		proxy := etcdtest.NewProxy(t, server.Addr())
		p := as(t, user, proxy.Addr())
		var all []driver.Renewal
		for i := range leases {
			g := p.take(strconv.Itoa(i), long)
			all = append(all, driver.Renewal{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: long})
		}
		renew := func() {
			for i, out := range p.Renew(within(t), all) {
				if out.Err != nil {
					t.Fatalf("renewal %d: %v", i, out.Err)
				}
			}
		}
		renew()
		rounds, times := 1, 3
		if !testing.Short() {
			rounds, times = 5, 30
		}
		for range rounds {
			passwords, streams, before := proxy.Count(methodAuthenticate), proxy.Count(methodKeepAlive), processorOf(t, server)
			for range times {
				renew()
			}
			used[user] = append(used[user], (processorOf(t, server)-before)/time.Duration(leases*times))
			if n := proxy.Count(methodAuthenticate) - passwords; n > 0 {
				t.Errorf("%d renewals as %q had %d passwords checked", leases*times, user, n)
			}
			if n := proxy.Count(methodKeepAlive) - streams; n > 0 {
				t.Errorf("%d renewals as %q opened %d streams", leases*times, user, n)
			}
		}
	}
	t.Logf("etcd's processor time for a renewal: %v without authentication, %v with it", used[""], used["locks"])
}

// processorOf returns the processor time that a server has used, where Linux says it.
func processorOf(t *testing.T, server *testservers.Server) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server.Pid()))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
