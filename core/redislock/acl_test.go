package redislock_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// minimalACL is what the package's documentation says that a user needs.
var minimalACL = strings.Fields("resetkeys resetchannels -@all ~la2:* &la2:*" +
	" +set +xadd +evalsha +eval +get +del +exists +pttl +pexpire +hmget +hexists +hset +hdel +time +publish +subscribe +ping")

// user makes a user with these rights, and no others, and has a client be it.
func user(t testing.TB, server *testservers.Server, rights []string) func(*redis.Options) {
	t.Helper()
	words := append([]string{"ACL", "SETUSER", "locks", "reset", "on", ">secret"}, rights...)
	if answer, err := server.Do(words...); err != nil {
		t.Fatalf("ACL SETUSER: %s, %v", answer, err)
	}
	return func(o *redis.Options) { o.Username, o.Password = "locks", "secret" }
}

func without(rights []string, right string) []string {
	return slices.DeleteFunc(slices.Clone(rights), func(r string) bool { return r == right })
}

func TestMinimalACLPermitsLocks(t *testing.T) { minimalACLPermitsLocks(t, testservers.Redis) }

func minimalACLPermitsLocks(t *testing.T, start starter) {
	for _, protocol := range []int{2, 3} {
		server := start(t)
		as := user(t, server, minimalACL)
		resp := func(o *redis.Options) { o.Protocol = protocol }
		a, b := join(t, server.Addr(), as, resp), join(t, server.Addr(), as, resp)
		for _, p := range []*process{a, b} {
			if err := p.Ping(bounded(t)); err != nil {
				t.Fatalf("ping: %v", err)
			}
		}
		g := a.take("k", lasting)
		_, c := b.queue("k", lasting)
		// Its place may have lapsed, if this machine stood still, and is then refreshed.
		eventually(t, "a renewal that says that another process waits", func() bool {
			r := a.renew(g, lasting)
			if r.Err != nil {
				t.Fatalf("renewal: %v", r.Err)
			}
			return r.Contended
		})
		a.release(g)
		o := await(t, c)
		if o.err != nil {
			t.Fatal(o.err)
		}
		b.release(o.Grant)
	}
}

// Whoever copies the rights from the documentation has those with which the tests pass.
func TestDocumentedACLIsTheOneThatIsTested(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "ACL SETUSER locks on ")
	if !ok {
		t.Fatal("doc.go has no ACL SETUSER")
	}
	// The password, the rights, and what follows the block.
	words := strings.Fields(strings.ReplaceAll(after, "\n//", "\n"))[1:]
	if n := len(minimalACL); !slices.Equal(words[:n], minimalACL) || strings.HasPrefix(words[n], "+") {
		t.Errorf("doc.go grants %q, the tests %q", words[:n+1], minimalACL)
	}
}

func TestConformanceUnderMinimalACL(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole suite once more")
	}
	t.Cleanup(func() {
		if !t.Failed() {
			t.Attr("figure-20", "the conformance suite passes under the minimal ACL, and +scan to list keys: "+strings.Join(minimalACL, " "))
		}
	})
	conformanceUnderMinimalACL(t, testservers.Redis)
}

func conformanceUnderMinimalACL(t *testing.T, start starter) {
	drivertest.Run(t, func(t *testing.T) *drivertest.Harness {
		server := start(t)
		o := redis.Options{Addr: server.Addr()}
		user(t, server, append(slices.Clone(minimalACL), "+scan"))(&o)
		return &drivertest.Harness{Driver: redislock.New(newClient(t, o))}
	})
}

func TestPingNamesWhatIsDenied(t *testing.T) { pingNamesWhatIsDenied(t, testservers.Redis) }

func pingNamesWhatIsDenied(t *testing.T, start starter) {
	server := start(t)
	for right, name := range map[string]string{
		"+set": "set", "+xadd": "xadd", "+get": "get", "+del": "del", "+exists": "exists", "+pttl": "pttl",
		"+hmget": "hmget", "+hexists": "hexists", "+hset": "hset", "+hdel": "hdel",
		"+pexpire": "pexpire", "+time": "time", "+publish": "publish", "+evalsha": "eval", "+eval": "eval",
		"+subscribe": "subscribe", "+ping": "ping", "~la2:*": "la2:*", "&la2:*": "la2:*",
	} {
		t.Run(right, func(t *testing.T) {
			p := join(t, server.Addr(), user(t, server, without(minimalACL, right)))
			err := p.Ping(bounded(t))
			if !errors.As(err, new(*driver.PermanentError)) || !strings.Contains(err.Error(), name) {
				t.Errorf("ping without %s: %v", right, err)
			}
			if keys, err := join(t, server.Addr()).client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
				t.Errorf("keys left: %q, %v", keys, err)
			}
		})
	}
}

func TestWrongPasswordIsAPermanentError(t *testing.T) {
	server := testservers.Redis(t)
	if answer, err := server.Do("CONFIG", "SET", "requirepass", "right"); err != nil {
		t.Fatalf("CONFIG SET: %s, %v", answer, err)
	}
	for name, set := range map[string]func(*redis.Options){
		"none":  func(*redis.Options) {},
		"wrong": func(o *redis.Options) { o.Password = "wrong" },
	} {
		t.Run(name, func(t *testing.T) {
			p := join(t, server.Addr(), set)
			if err := p.Ping(bounded(t)); !errors.As(err, new(*driver.PermanentError)) {
				t.Errorf("ping: %v", err)
			}
			if _, err := p.try("k", lasting); !errors.As(err, new(*driver.PermanentError)) {
				t.Errorf("acquire: %v", err)
			}
		})
	}
}
