package redislock_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/testservers"
)

// startValkey starts a server that says itself that it is Valkey, and no Redis by that name.
// Its tests repeat those on Redis.
func startValkey(t testing.TB, args ...string) *testservers.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("is tried on Redis")
	}
	server := testservers.Valkey(t, args...)
	info, err := newClient(t, redis.Options{Addr: server.Addr()}).Info(t.Context(), "server").Result()
	if err != nil || !strings.Contains(info, "valkey_version:") {
		t.Fatalf("valkey-server is no Valkey: %v\n%s", err, info)
	}
	return server
}

func TestConformanceOnValkey(t *testing.T) {
	for _, c := range []struct {
		name string
		o    redis.Options
	}{
		{"RESP3", redis.Options{Protocol: 3}},
		{"RESP2, without retries", redis.Options{Protocol: 2, MaxRetries: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("runs the whole suite once more")
			}
			drivertest.Run(t, func(t *testing.T) *drivertest.Harness { return harness(t, startValkey, c.o) })
		})
	}
}

func TestMinimalACLPermitsLocksOnValkey(t *testing.T) { minimalACLPermitsLocks(t, startValkey) }

func TestPingNamesWhatIsDeniedOnValkey(t *testing.T) { pingNamesWhatIsDenied(t, startValkey) }

func TestConformanceUnderMinimalACLOnValkey(t *testing.T) { conformanceUnderMinimalACL(t, startValkey) }
