package etcdlock_test

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
)

func TestPingFindsOutWhatARoleLacks(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
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

	as := func(user string) *process {
		config := clientv3.Config{Endpoints: []string{server.Addr()}, Logger: zap.NewNop(), Username: user, Password: "secret"}
		if user == "" {
			config.Username, config.Password = "", ""
		}
		c, err := clientv3.New(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close the client: %v", err)
			}
		})
		return open(t, etcdlock.New(c))
	}
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
