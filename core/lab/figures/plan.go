package main

import "slices"

// test is a trial of tests in a package's folder, which count in full.
func test(driver, pattern, folder string, told ...int) trial {
	return trial{driver, told, []string{"LOCKAROUND_COUNTS=all"}, []string{"go", "test", "-v", "-count=1", "-timeout=90m", "-run", pattern, folder}}
}

// without is the trial but for the tests that match.
func (t trial) without(pattern string) trial {
	t.Args = slices.Insert(slices.Clone(t.Args), len(t.Args)-1, "-skip", pattern)
	return t
}

// raced is the trial with the race detector.
func (t trial) raced() trial {
	t.Args = slices.Insert(slices.Clone(t.Args), 2, "-race")
	return t
}

// laboratory is a trial of the fault laboratory, and of its mutants.
func laboratory(driver, store string) trial {
	return trial{driver, []int{2, 6}, nil, []string{"go", "run", "./core/lab/faults", "-store", store, "-time", "5m"}}
}

// trials are all commands. Of drivers that are told apart by their servers each has its own.
var trials = []trial{
	// What drivertest/endurance does to every driver.
	test(single, "^TestEndurance$", "./core/redislock", 1, 4, 9, 10, 11, 12, 14).without("/^ReleaseEndsRenewal$"),
	test(quorum, "^TestEndurance$", "./core/redlock", 1, 4, 9, 10, 11, 12, 14).without("/^ReleaseEndsRenewal$"),
	test(zookeeper, "^TestEndurance$", "./core/zklock", 1, 4, 9, 10, 11, 12, 14).without("/^ReleaseEndsRenewal$"),
	test(etcd, "^TestEndurance$", "./core/etcdlock", 1, 4, 9, 10, 11, 12, 14).without("/^ReleaseEndsRenewal$"),
	test(postgresql, "^TestEndurance$/^PostgreSQL$", "./core/lab/databases/sqllock", 1, 4, 9, 10, 11, 12, 14).without("//^ReleaseEndsRenewal$"),
	test(mariadb, "^TestEndurance$/^MariaDB$", "./core/lab/databases/sqllock", 1, 4, 9, 11, 12, 14).without("//^ReleaseEndsRenewal$"),
	test(memory, "^TestEndurance$", "./core/memlock", 11, 12).without("/^ReleaseEndsRenewal$"),
	test(single, "^TestEndurance$/^ReleaseEndsRenewal$", "./core/redislock", 8).raced(),
	test(quorum, "^TestEndurance$/^ReleaseEndsRenewal$", "./core/redlock", 8).raced(),
	test(zookeeper, "^TestEndurance$/^ReleaseEndsRenewal$", "./core/zklock", 8).raced(),
	test(etcd, "^TestEndurance$/^ReleaseEndsRenewal$", "./core/etcdlock", 8).raced(),
	test(postgresql, "^TestEndurance$/^PostgreSQL$/^ReleaseEndsRenewal$", "./core/lab/databases/sqllock", 8).raced(),
	test(mariadb, "^TestEndurance$/^MariaDB$/^ReleaseEndsRenewal$", "./core/lab/databases/sqllock", 8).raced(),
	test(memory, "^TestEndurance$/^ReleaseEndsRenewal$", "./core/memlock", 8).raced(),

	laboratory(single, "redis"),
	laboratory(sentinel, "sentinel"),
	laboratory(cluster, "cluster"),
	laboratory(quorum, "quorum"),
	laboratory(zookeeper, "zookeeper"),
	laboratory(etcd, "etcd"),
	laboratory(postgresql, "postgres"),
	laboratory(mariadb, "mariadb"),

	test(single, "^TestCrowdIsLetInOneByOne$", "./core/redislock", 3),
	test(cluster, "^TestCrowdIsLetInOneByOneByACluster$", "./core/redislock", 3),
	test(quorum, "^TestCrowdIsLetInOneByOne$", "./core/redlock", 3),
	test(zookeeper, "^TestCrowdIsLetInOneByOne$", "./core/zklock", 3),
	test(etcd, "^TestCrowdIsLetInOneByOne$", "./core/etcdlock", 3),
	test(postgresql, "^TestCrowdIsLetInOneByOne$/^PostgreSQL$", "./core/lab/databases/sqllock", 3),
	test(mariadb, "^TestCrowdIsLetInOneByOne$/^MariaDB$", "./core/lab/databases/sqllock", 3),
	test(memory, "^TestCrowdIsLetInOneByOne$", "./core/memlock", 3),

	test(single, "^TestSimulation$", "./core/redislock", 5),
	test(quorum, "^TestSimulation$", "./core/redlock", 5),

	test(single, "^TestSimulationCatchesMutants$", "./core/redislock", 6),
	test(quorum, "^TestSimulationCatchesMutants$", "./core/redlock", 6),
	test(engine, "^TestBrokenDriversAreCaught$", "./core/drivertest", 6),
	{single, []int{6}, nil, []string{"core/redislock/internal/protocol/model/check"}},

	test(single, "^TestKilledHolder", "./core/redislock", 7),
	test(quorum, "^TestKilledHolder", "./core/redlock", 7),
	test(zookeeper, "^TestKilledHolder", "./core/zklock", 7),
	test(etcd, "^TestKilledHolder", "./core/etcdlock", 7),
	test(postgresql, "^TestKilledHolder/^PostgreSQL$", "./core/lab/databases/sqllock", 7),
	test(mariadb, "^TestKilledHolder/^MariaDB$", "./core/lab/databases/sqllock", 7),

	test(sentinel, "^TestSentinelFailoverThatLosesWrites", "./core/redislock", 13, 14),
	test(single, "^TestTokensRiseOverEvictions$", "./core/redislock", 14),

	test(single, "^TestTokensRiseThoughTheServersClockJumpsByAnHour$", "./core/redislock", 15),
	test(quorum, "^TestTokensRiseThoughANodesClockJumpsByAnHour$", "./core/redlock", 15),
	test(engine, "^TestRemainingGoesByTheClockThatLeavesLess$", "./core/driver", 15),
	test(postgresql, "^TestTokensRiseThoughTheServersClockJumpsByAnHour$", "./core/lab/databases/sqllock", 15),

	test(quorum, "^TestTwoOfFiveDeadAndOneBackEmptyLetNobodyInTwice$", "./core/redlock", 16),
	test(cluster, "^TestClusterReshardingLosesNoLease$", "./core/redislock", 17),
	test(single, "^TestThousandWaiters", "./core/redislock", 18),
	test(postgresql, "^TestKilledConnections/^PostgreSQL$", "./core/lab/databases/sqllock", 19),
	test(mariadb, "^TestKilledConnections/^MariaDB$", "./core/lab/databases/sqllock", 19),

	test(engine, "^TestFuzzedKeysStayApart$", "./core", 20),
	test(single, "^TestConformanceUnderMinimalACL$", "./core/redislock", 20),
	test(single, "^TestNobodyIsToldKeysOwnersPasswordsOrWhatTheStoreSays$", "./decorator/internal/secrets", 20),
}

// reason is why a figure is not asked of some drivers.
type reason struct {
	Figure  int
	Drivers []string
	Text    string
}

var reasons = []reason{
	{1, []string{memory}, "the store is in the process that is paused, and stops with it"},
	{2, []string{memory}, "its locks are of one process; what five do to each other needs a store between them"},
	{4, []string{memory}, "its calls are function calls: no reply is lost"},
	{5, []string{zookeeper, etcd, postgresql, mariadb, memory}, "the engine is simulated over Redis' protocol, and redlock over modelled nodes; this store has no model, and is tried as it is by the suite of core/drivertest and under the other figures"},
	{6, []string{memory}, "it has no bugs seeded of its own: it passes the suite that catches drivertest's broken drivers, and the engine above it is the one whose bugs the simulation catches"},
	{7, []string{memory}, "a process that is killed takes its store along"},
	{9, []string{memory}, "there is no network to be cut"},
	{10, []string{memory}, "it wakes waiters by function calls: there is no subscription"},
	{10, []string{mariadb}, "nobody is woken: waiters look for themselves, and figure 7 shows how soon"},
	{13, []string{single}, "one server has none to fail over to; a restart that loses all is figure 14"},
	{13, []string{quorum}, "its nodes do not fail over; one that is back empty is figure 16"},
	{13, []string{zookeeper, etcd}, "a majority has what was acknowledged, so that a change of leader loses no write; the test with LeaderKilledUnderLoad in its name has leaders killed"},
	{13, []string{postgresql, mariadb}, "cannot hold: a failover to a replica that lacks commits may grant a key twice, which sqllock's documentation says; there is no replica in these tests. Tokens go by the server's clock as in Redis"},
	{13, []string{memory}, "there is no server"},
	{14, []string{quorum}, "of eviction: a node that evicts a key is one that has lost its data"},
	{14, []string{zookeeper, etcd, postgresql, mariadb}, "of eviction: they evict nothing"},
	{14, []string{memory}, "the store is gone with its process; tokens go by the clock, so that the next process's are larger"},
	{15, []string{mariadb}, "not tried by itself: leases last, and tokens are made, by the server's wall clock as with PostgreSQL, by the same code; MariaDB waits on locks by that clock, which only a clock of the whole machine could move in step"},
	{15, []string{memory}, "it goes by the process's monotonic clock, and counts tokens"},
	{15, []string{zookeeper}, "it goes by no wall clock: sessions and leases by the monotonic clocks of servers and clients, tokens are numbers of transactions. Only Inspect shows times of the wall"},
	{15, []string{etcd}, "it goes by no wall clock: etcd counts leases by its monotonic clock, tokens are its revisions"},
	{16, []string{single, postgresql, mariadb, memory}, "it is one server"},
	{16, []string{zookeeper, etcd}, "its servers agree on a log, from which one that is back empty learns what the others have: a majority is asked, not a quorum of strangers"},
	{17, []string{single, quorum, zookeeper, etcd, postgresql, mariadb, memory}, "it has no slots that move"},
	{18, []string{quorum}, "cannot hold: a hand-over is two commands to each of the nodes"},
	{18, []string{zookeeper, etcd}, "not counted: a hand-over is two requests, as the tests of costs show, but every waiter looks for itself about once a second and renews its place besides"},
	{18, []string{postgresql, mariadb}, "cannot hold: a hand-over is two transactions, of eight round trips in PostgreSQL"},
	{18, []string{memory}, "its locks are of one process, and sent no commands"},
	{19, []string{single, quorum, zookeeper, etcd}, "it is no database; connections are killed too in the laboratory (faults reset, client-kill and subscriber-kill)"},
	{19, []string{memory}, "there is no connection"},
	{20, []string{quorum, zookeeper, etcd, postgresql, mariadb, memory}, "keys are rendered by core, for all stores; the rights that this one needs are in its package's documentation, and Ping checks them"},
}
