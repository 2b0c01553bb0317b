package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/testservers"
)

// diagnose runs doctor, and fails the test unless the findings have these levels, "level text" with
// a part of what was seen.
func diagnose(t *testing.T, store string, status int, want map[string]string, args ...string) {
	t.Helper()
	var d doctorJSON
	r := ctl(t, store, append([]string{"doctor", "-json"}, args...)...)
	r.must(t, status).read(t, &d)
	seen := make(map[string]string)
	for _, f := range d.Findings {
		if seen[f.Check] != "" {
			seen[f.Check] += "\n"
		}
		seen[f.Check] += string(f.Level) + " " + f.Seen
		if (f.Level == good) != (f.Why == "") || f.Level != good && f.Do == "" {
			t.Errorf("%s is %s, why %q, do %q", f.Check, f.Level, f.Why, f.Do)
		}
	}
	for check, text := range want {
		level, part, _ := strings.Cut(text, " ")
		found := false
		for _, s := range strings.Split(seen[check], "\n") {
			found = found || (level == "" || strings.HasPrefix(s, level+" ")) && strings.Contains(s, part)
		}
		if !found {
			t.Errorf("%s: %q, want %q", check, seen[check], text)
		}
	}
	if t.Failed() {
		t.Log(r.out)
	}
}

func redisAt(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestDoctorFindsBadSettingsOfRedis(t *testing.T) {
	server := testservers.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--client-output-buffer-limit", "pubsub", "1kb", "1kb", "60")
	store := "redis://" + server.Addr()
	take(t, service(t, store), core.Policy{Key: "held"})
	c := redisAt(t, server.Addr())
	eternal, strange, deaf := nameOf(t, c, "eternal"), nameOf(t, c, "strange"), nameOf(t, c, "deaf")
	for _, words := range [][]any{
		{"PERSIST", eternal},
		{"SET", strange, "x"},
		{"DEL", deaf},
		{"HSET", deaf, "t", 1, "s", fmt.Sprintf("0123456789abcdef1:1:%d:%d:8:la2:gone", time.Now().Add(time.Hour).UnixMilli(), time.Hour.Milliseconds())},
		{"PEXPIRE", deaf, 100000},
		{"ACL", "SETUSER", "locks", "on", ">geheim", "resetkeys", "resetchannels", "-@all", "~la2:*", "&la2:*", "+@all", "-hset", "-publish"},
	} {
		if err := c.Do(t.Context(), words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	diagnose(t, store, failed, map[string]string{
		"driver": "ok", "version": "ok Redis", "role": "ok master", "eviction": "bad allkeys-lru", "persistence": "warn appendonly no", "pushes": "warn pubsub 1024",
		"rights": "ok the user default", "clock": "ok within", "overwritten keys": "bad " + strange + " is a string", "keys without TTL": "bad " + eternal,
		"holders that hear nothing": "warn " + deaf, "subscriptions": "ok 5 sessions", "connections": "ok of at most", "delivery": "ok 1 of 1",
	})
	diagnose(t, store, failed, map[string]string{"rights": "bad the user locks, on keys and channels la2:*: lacks hset, publish"}, "-user", "locks")
	diagnose(t, "redis://locks:geheim@"+server.Addr(), failed, map[string]string{"driver": "bad publish", "rights": "bad lacks hset, publish"})
	shown := ctl(t, store, "doctor").must(t, failed)
	for _, want := range []string{"BAD", "why: locks have a TTL", "do:  CONFIG SET maxmemory-policy noeviction"} {
		if !strings.Contains(shown.out, want) {
			t.Errorf("%q is not in\n%s", want, shown.out)
		}
	}
}

// nameOf takes a key, and returns its name at the server.
func nameOf(t *testing.T, c *redis.Client, key string) string {
	t.Helper()
	take(t, service(t, "redis://"+c.Options().Addr), core.Policy{Key: key})
	names, err := c.Keys(t.Context(), "*shop/"+key).Result()
	if err != nil || len(names) != 1 {
		t.Fatalf("%q is named %q, %v", key, names, err)
	}
	return names[0]
}

func TestDoctorIsContentWithARedisThatIsSetUpForLocks(t *testing.T) {
	server := testservers.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	store := "redis://" + server.Addr()
	take(t, service(t, store), core.Policy{Key: "held"})
	var d doctorJSON
	ctl(t, store, "doctor", "-json").must(t, fine).read(t, &d)
	if d.OK < 12 || d.Warn+d.Bad+d.Unknown > 0 {
		t.Errorf("%+v", d)
	}
}

func TestDoctorSaysWhatItWasNotTold(t *testing.T) {
	server := testservers.Redis(t)
	c := redisAt(t, server.Addr())
	rights := "ACL SETUSER locks on >geheim resetkeys resetchannels -@all ~la2:* &la2:* +" + strings.ReplaceAll(redisNeeds["la2:"], " ", " +")
	var words []any
	for _, word := range strings.Fields(rights) {
		words = append(words, word)
	}
	if err := c.Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	diagnose(t, "redis://locks:geheim@"+server.Addr(), fine, map[string]string{
		"driver": "ok", "server": "unknown NOPERM", "appendonly": "unknown NOPERM", "rights": "unknown NOPERM", "subscriptions": "unknown NOPERM", "keys": "unknown NOPERM", "clock": "ok",
	})
}

func TestDoctorNamesWhatAManagedServerLacks(t *testing.T) {
	args := []string{"--maxclients", "100"}
	for _, c := range []string{"CONFIG", "CLIENT", "ACL", "HELLO"} {
		args = append(args, "--rename-command", c, "")
	}
	server := testservers.Redis(t, args...)
	by := proxy.Start(t, server.Addr(), proxy.Options[[]byte]{Codec: func() proxy.Codec[[]byte] { return new(undelivered) }})
	defer by.LosePushes()()
	for range 81 {
		if err := redisAt(t, server.Addr()).Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	diagnose(t, "redis://"+server.Addr(), fine, map[string]string{
		"driver": "ok", "appendonly": "unknown unknown command", "rights": "unknown unknown command", "subscriptions": "unknown unknown command",
		"protocol": "ok RESP2", "connections": "warn of at most 100", "delivery": "ok 1 of 1",
	})
	diagnose(t, "redis://"+by.Addr(), fine, map[string]string{"driver": "ok", "delivery": "warn 0 of 1"})
}

// undelivered has a proxy lose what is published, and pass on all else, the answer to a subscription among it.
type undelivered struct{ proxy.Chunks }

func (*undelivered) See(d proxy.Direction, data []byte) proxy.Message[[]byte] {
	return proxy.Message[[]byte]{Push: d == proxy.ToClient && bytes.Contains(data, []byte("\r\nmessage\r\n")) && !bytes.Contains(data, []byte("\r\nsubscribe\r\n"))}
}

func TestDoctorLooksAtReplicasClustersAndQuorums(t *testing.T) {
	diagnose(t, stores["sentinel"](t), fine, map[string]string{"replicas": "warn 1 replicas, min-replicas-to-write 0"})
	cluster := testservers.RedisCluster(t, 3, 0)
	cluster.Do("CONFIG", "SET", "cluster-require-full-coverage", "yes")
	diagnose(t, "redis+cluster://"+strings.Join(cluster.Addrs(), ","), fine, map[string]string{"coverage": "warn yes", "rights": "ok"})
	down := testservers.Redis(t)
	store := "redis+redlock://" + testservers.Redis(t).Addr() + "," + down.Addr() + "," + testservers.Redis(t).Addr()
	diagnose(t, store, fine, map[string]string{"clocks of the nodes": "ok 0s apart", "rights": "ok lr1:*: all", "driver": "ok"})
	down.Kill()
	diagnose(t, store, fine, map[string]string{"server": "warn refused", "driver": "ok"})
}

func TestDoctorLooksAtEtcd(t *testing.T) {
	diagnose(t, stores["etcd"](t), fine, map[string]string{
		"driver": "ok", "version": " etcd", "members": "warn 1", "quorum": "ok 1 of 1", "authentication": "warn off", "alarms": "ok none", "compaction": "ok", "size": "ok", "clock": "ok not needed",
	})
}

func TestDoctorFindsBadSettingsOfZooKeeper(t *testing.T) {
	store := "zookeeper://" + testservers.ZooKeeper(t, "tickTime=2000", "minSessionTimeout=1000", "maxSessionTimeout=10000").Addr()
	take(t, service(t, store), core.Policy{Key: "k"})
	diagnose(t, store, failed, map[string]string{
		"driver": "ok", "version": "ok ZooKeeper 3.", "session time-out": "warn 1000 to 10000 ms", "tick": "bad tickTime 2000 ms, minSessionTimeout 1000 ms",
		"ensemble": "warn one server", "permissions": "warn everybody", "jute.maxbuffer": "ok the list of 1 keys", "connections": "ok", "clock": "unknown",
	})
	diagnose(t, stores["zookeeper"](t), fine, map[string]string{"tick": "ok", "session time-out": "ok 4000 to 40000 ms"})
}

func TestDoctorFindsBadSettingsOfPostgreSQL(t *testing.T) {
	at := databaseOf(t, postgres)
	store := "postgres://root@" + at + "?sslmode=disable"
	diagnose(t, store, failed, map[string]string{"driver": "bad", "tables": "bad SELECT on lockaround_lock"})
	migrate(t, store)
	_, name, _ := strings.Cut(at, "/")
	execute(t, store, "ALTER DATABASE "+name+" SET synchronous_commit = off", "CREATE ROLE reader LOGIN", "GRANT SELECT ON lockaround_lock, lockaround_claim, lockaround_row TO reader")
	diagnose(t, store, failed, map[string]string{
		"driver": "ok", "version": "ok PostgreSQL", "role": "ok primary", "synchronous_commit": "bad synchronous_commit off, fsync off", "autovacuum": "ok on",
		"pooler": "ok none", "bloat": "ok", "clock": "ok", "tables": "ok", "replication": "ok",
	})
	diagnose(t, strings.Replace(store, "root@", "reader@", 1), failed, map[string]string{"tables": "bad not possible: UPDATE on lockaround_lock"})
}

func TestDoctorFindsBadSettingsOfMariaDB(t *testing.T) {
	store := stores["mariadb"](t)
	diagnose(t, store, failed, map[string]string{
		"driver": "ok", "version": "ok MariaDB", "innodb_flush_log": "bad innodb_flush_log_at_trx_commit 2", "idle_transaction_timeout": "warn 0",
		"role": "ok", "isolation": "ok READ COMMITTED", "clock": "ok", "tables": "ok",
	})
	execute(t, store, "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL idle_transaction_timeout = 1")
	defer execute(t, store, "SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL idle_transaction_timeout = 0")
	diagnose(t, store, fine, map[string]string{"innodb_flush_log": "ok", "idle_transaction_timeout": "ok 1"})
}

func execute(t *testing.T, store string, statements ...string) {
	t.Helper()
	s := service(t, store)
	for _, statement := range statements {
		if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoctorOfAMuteStoreFindsThatInTime(t *testing.T) {
	for _, store := range muteStores("") {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			addr, _ := mute(t)
			scheme, _, _ := strings.Cut(store, "://")
			for _, store := range muteStores(addr) {
				if !strings.HasPrefix(store, scheme+"://") {
					continue
				}
				began := time.Now()
				var d doctorJSON
				ctl(t, store, "doctor", "-json", "-timeout", "200ms").must(t, failed).read(t, &d)
				if took := time.Since(began); took > 30*time.Second { // half of what it took without a bound
					t.Errorf("it took %v", took)
				}
				if d.Findings[0].Check != "driver" || d.Findings[0].Level != bad || d.OK > 0 || d.Unknown < 2 {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

func TestDoctorIsNotContentWithWhatItCouldNotAsk(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	var d doctorJSON
	ctl(t, "redis://"+server.Listener.Addr().String(), "doctor", "-json").must(t, failed).read(t, &d)
	if d.OK > 0 || d.Bad != 2 || d.Unknown != 2 {
		t.Errorf("%+v", d)
	}
}

func TestDoctorHasOneFindingIfThePasswordIsWrong(t *testing.T) {
	addr := testservers.Redis(t).Addr()
	for _, store := range []string{"redis://nobody:falsch@" + addr} {
		var d doctorJSON
		ctl(t, store, "doctor", "-json").must(t, failed).read(t, &d)
		if len(d.Findings) != 1 || !strings.Contains(d.Findings[0].Seen, "the password is wrong") {
			t.Errorf("%s: %+v", store, d)
		}
	}
	for _, text := range []string{
		"failed SASL auth: FATAL: password authentication failed for user \"locks\" (SQLSTATE 28P01)",
		"Error 1045 (28000): Access denied for user 'root'@'localhost' (using password: YES)",
		"etcdserver: authentication failed, invalid user ID or password",
	} {
		if !isWrongPassword(text) {
			t.Error(text)
		}
	}
}

func TestFindingIsALine(t *testing.T) {
	r := ctl(t, "postgres://u@127.0.0.1:1/x", "doctor", "-timeout", "300ms").must(t, failed)
	for _, line := range strings.Split(strings.TrimSpace(r.out), "\n") {
		if strings.Contains(line, `\t`) || !strings.HasPrefix(line, "BAD ") && !strings.HasPrefix(line, "UNKNOWN ") && !strings.HasPrefix(line, "       ") && !strings.HasPrefix(line, "0 ok") {
			t.Errorf("%q", line)
		}
	}
}

func TestRightsAreThoseOfTheDocumentation(t *testing.T) {
	for prefix, file := range map[string]string{"la2:": "../redislock/doc.go", "lr1:": "../redlock/doc.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "ACL SETUSER locks on ")
		var documented []string
		for _, word := range strings.Fields(strings.ReplaceAll(after, "\n//", "\n"))[1:] {
			if right, found := strings.CutPrefix(word, "+"); found {
				documented = append(documented, right)
			} else if len(documented) > 0 {
				break
			}
		}
		if got := strings.Join(documented, " "); got != redisNeeds[prefix] {
			t.Errorf("%s grants %s, and doctor tries %s", file, got, redisNeeds[prefix])
		}
	}
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for version, want := range map[string]bool{"6.2": true, "6.2.0": true, "7.0.15": true, "10.0": true, "6.10": true, "6.1.9": false, "6": false, "5.9": false, "": false} {
		if got := atLeast(version, 6, 2); got != want {
			t.Errorf("atLeast(%q, 6, 2) is %v", version, got)
		}
	}
	for version, want := range map[string]level{"3.3.9": bad, "3.4.30": warn, "3.4.31": good, "3.5.12": warn, "3.5.13": good, "3.6.0": good} {
		var all []finding
		etcdVersion(findings{all: &all}, version)
		if all[0].Level != want {
			t.Errorf("etcd %s is %s, want %s", version, all[0].Level, want)
		}
	}
}

func TestClockThatIsOffIsFound(t *testing.T) {
	now := time.Now()
	for off, want := range map[time.Duration]level{0: good, time.Second / 2: good, 3 * time.Second: warn, -time.Hour: warn} {
		var all []finding
		findings{all: &all}.clock(now.Add(off), now, now.Add(time.Millisecond))
		if all[0].Level != want {
			t.Errorf("%v off is %s: %s", off, all[0].Level, fmt.Sprint(all[0]))
		}
	}
}
