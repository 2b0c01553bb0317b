package etcdlock_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestClientLogsInAgainWhenItsTokenIsOver(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the end of a token")
	}
	t.Setenv("ETCD_AUTH_TOKEN_TTL", "1") // of the server, in seconds from the token's last use
	server := testservers.Etcd(t)
	authenticated(t, server)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := as(t, "locks", proxy.Addr())
	p.drop(p.take("k", long))
	for range 3 {
		time.Sleep(3 * time.Second) // no sign of its end reaches a client that asks nothing
		before := proxy.Count(methodAuthenticate)
		p.drop(p.take("k", long))
		if n := proxy.Count(methodAuthenticate) - before; n < 1 || n > 4 {
			t.Errorf("to log in again took %d requests; 1 is refused, and 1 is needed", n)
		}
	}
	time.Sleep(3 * time.Second)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			if _, err := p.Acquire(within(t), request(strconv.Itoa(i), long)); err != nil {
				t.Errorf("one of ten acquisitions at once: %v", err)
			}
		})
	}
	all.Wait()
}

func TestPingRefusesAClientThatItsTokenLocksOut(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	st, err := etcdtest.Client(t, server.Addr()).Status(within(t), server.Addr()) // which later only root may ask
	if err != nil {
		t.Fatal(err)
	}
	authenticated(t, server)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Username: "locks", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	p := open(t, etcdlock.New(c))
	err = p.Ping(within(t))
	if old := strings.HasPrefix(st.Version, "3.4."); old != (errors.As(err, new(*driver.PermanentError)) && strings.Contains(err.Error(), "KeepLoggedIn")) {
		t.Errorf("ping of etcd %s by a client that does not stay logged in: %v", st.Version, err)
	}
}
