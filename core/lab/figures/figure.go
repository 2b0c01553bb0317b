package main

// figure is one of those to reach. They are counted from 1.
type figure struct{ What, Target string }

var figures = []figure{
	{"Holders that were paused for three TTLs, and write when they go on", "1,000 pauses, 0 stale writes accepted"},
	{"A fenced counter that five processes add to under mixed faults", "its end is the number of accepted increments"},
	{"Acquisitions by many at once", "1,000,000, 0 overlaps"},
	{"Replies that are lost on acquire, on renew and on release", "1,000 each, 0 double grants, a ghost lasts at most T + 100 ms"},
	{"Simulated schedules", "100,000 seeds in a run, 0 violations"},
	{"Seeded bugs that the suites must catch", "all, and at least 15"},
	{"kill -9 of the holder", "500 times, the next grant within T + ε"},
	{"Releases that race with renewals, with the race detector", "10,000, no renewal after a release"},
	{"A holder that is cut off from the store", "its context is done by D + 50 ms, and always before the next grant"},
	{"Subscriptions that are killed during a release", "1,000, nobody waits beyond the poll"},
	{"A context of 100 ms against a store that has stalled", "back within 150 ms, 10,000 times, 0 goroutines or connections leaked"},
	{"Waiters that are cancelled", "10,000, 0 ghosts"},
	{"Failovers that lose writes", "100, counted and reported, 0 stale writes accepted"},
	{"Tokens over restart, loss of all data, eviction and failover", "100 of each, 0 regressions"},
	{"Wall clocks that jump by an hour, forward and back", "tokens rise and the guard holds"},
	{"A quorum of five, of which two are dead and one is back empty", "0 overlaps, 0 token regressions"},
	{"A Cluster that is resharded under load", "0 leases lost"},
	{"1,000 waiters in 20 processes", "at most 2 commands to the store for each hand-over, nobody waits for more than 10 × the median"},
	{"Connections to the database that are killed", "100 times, 0 overlaps, nothing left behind"},
	{"Keys, rights and secrets", "10,000,000 fuzzed keys, 0 collisions; the minimal ACL passes the suite; 0 secrets in logs and spans"},
}

// The drivers, with the arrangements of servers that figures are told apart by.
const (
	single     = "redislock"
	sentinel   = "redislock, Sentinel"
	cluster    = "redislock, Cluster"
	quorum     = "redlock"
	zookeeper  = "zklock"
	etcd       = "etcdlock"
	postgresql = "sqllock, PostgreSQL"
	mariadb    = "sqllock, MariaDB"
	memory     = "memlock"
	engine     = "core" // what is the same for all of them
)

// drivers has them in the order of the table.
var drivers = []string{single, sentinel, cluster, quorum, zookeeper, etcd, postgresql, mariadb, memory, engine}

// stores are the drivers that each figure must say something of. The others say what
// differs from them.
var stores = []string{single, quorum, zookeeper, etcd, postgresql, mariadb, memory}
