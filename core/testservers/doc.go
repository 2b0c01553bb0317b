// Package testservers starts real servers for tests: Redis, Valkey, etcd, ZooKeeper, PostgreSQL and
// MariaDB, as the programs that are installed on the machine.
//
//	func TestStock(t *testing.T) {
//		server := testservers.Redis(t)
//		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
//		…
//		server.Restart() // empty, on the same port
//	}
//
// A server is a process of its own on a free port of 127.0.0.1, in a temporary folder. It ends with
// the test that has started it, and its folder is removed then. A test may start as many as it wants,
// and tests may start theirs in parallel. The port stays the same when the server is killed and
// started again, and nobody else on the machine is given it meanwhile. Those that start one return
// when it answers, and is the one that was started: clients need not try again. What has to come is
// waited for as long as two minutes, or until the test's context ends.
//
// Tests break servers: [Server.Kill] is kill -9, [Server.Pause] is a server that hangs, and
// [Cluster] and [Sentinel] lose masters. Each returns when what it did has taken effect. Whatever
// they cannot do fails the test, so that none of them returns an error; like [testing.T.FailNow] they
// are for the goroutine of the test, one at a time.
//
// A test whose server is not installed is skipped, and says what Debian calls its package. With
// LOCKAROUND_REQUIRE_SERVERS=1 in the environment it fails instead: set that where nobody reads
// what was skipped. Servers that have no password of their own are open to all users of the machine.
//
// The package needs nothing but the standard library, and no client of any of these servers. It is
// tested on Linux. Elsewhere a server's own children are neither paused nor killed with it, and
// Windows cannot pause any.
//
// # Files
//
//	server.go    Server, and what can be done to each
//	start.go     the functions that start one, or several that are one store
//	cluster.go   a Redis Cluster: masters, moving slots, failovers
//	sentinel.go  a Redis master, its replicas, and Sentinels
//	shared.go    a server that all tests of a package share
//	missing.go   what happens without a server
package testservers
