# make test is the test command. It installs servers that are missing where it may.
#
#   make test        vet, generated code, lint, unit tests, every store's conformance and
#                    faults, a short simulation, all with the race detector: a quarter of an hour
#   make test-full   what make test leaves out: crowds, endurance, Valkey, the longer simulation,
#                    bugs that it must catch, and the newest releases of dependencies and Go
#   make test-long   more simulation, more kills, and time for each fuzz target: hours
#   make flakes      make test, many times: RUNS=20, beside LOAD=5 endless builds;
#                    TARGET=test-full runs that
#   make lint        golangci-lint and lockvet alone
#   make bench       the benchmarks
#   make peers       lockaround beside other lock libraries, for core/lab/peers/results and core/lab/peers/README.md
#   make faults      the fault laboratory, for core/lab/faults/results
#   make figures     the twenty figures in full, for core/lab/figures/results; needs spin, takes hours
#   make caches      its cache beside others, for core/lab/caches/results
#   make queues      decorator.Serial beside asynq, for core/lab/queues/results
#   make model       check the models of the Redis protocol and of serial queues; needs spin
#   make proto       generate the code of the .proto files; needs protoc
#   make newest      move .ci/newest.mod to the newest releases of dependencies

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := test

# For .ci/step, which shows the time since this target began.
export MAKE_BEGAN := $(shell date +%s)

# Where the events of the tests go, by target.
LOGS ?= .bin/tests/$@
SUITE := .bin/suite

# What .ci/servers could not find nor install. A test skips what is in it, and fails if
# anything else is missing; in CI nothing may be.
MISSING := .bin/missing
REQUIRE := $$([[ -s $(CURDIR)/$(MISSING) ]] || echo LOCKAROUND_REQUIRE_SERVERS=1)
DETECTOR := $$(grep -sqx compiler $(CURDIR)/$(MISSING) || echo -race)

LINT_VERSION := v2.15.0
LINT := .bin/golangci-lint-$(LINT_VERSION)/golangci-lint
LOCKVET := .bin/lockvet

# What newest.mod moves, Go itself among it; go.mod requires the lowest releases that serve.
NEWEST := github.com/gin-gonic/gin@latest github.com/redis/go-redis/v9@latest \
	google.golang.org/grpc@latest google.golang.org/protobuf@latest google.golang.org/genproto/googleapis/rpc@latest \
	go.opentelemetry.io/otel@latest go.opentelemetry.io/otel/metric@latest \
	go.opentelemetry.io/otel/trace@latest go.opentelemetry.io/otel/sdk@latest \
	go.opentelemetry.io/otel/sdk/metric@latest go.yaml.in/yaml/v4@latest toolchain@latest

# Generators as old as the releases that go.mod requires, so that their code
# compiles with those.
MODULE := github.com/lockaround/lockaround
PROTOS = $(shell find core decorator examples interceptor middleware -name '*.proto' | sort)
PROTOC_GEN_GO      := .bin/protoc-gen-go-v1.34.2
PROTOC_GEN_GO_GRPC := .bin/protoc-gen-go-grpc-v1.5.1

# What only examples need, tests on databases, the comparison with peers, or a driver
# that needs a client library of its own, is a module of its own. The main
# module is tested without the workspace, which would move its dependencies up to theirs. Those
# that take longest come first.
NESTED := core/lab core/etcdlock core/lockctl core/zklock examples/extra \
	decorator/lockgen decorator/lockvet decorator/queue/zkqueue

# What lockvet is tried on, in a module of its own for what it imports.
CASES := decorator/lockvet/testdata

# Those of them whose go.mod has lockgen for a tool, and that hold code of its making.
LOCKGEN := core/lab examples/extra

# The simulation has a step of its own without the race detector, which slows it
# down many times; the other steps run a few schedules of it. A process for each core takes
# a fifth less than one with as many threads. Five mutants show that it can fail; the long
# form tries all.
SCHEDULES ?= 5000
SHARE     := 2500
FIVE      := deadline.counts.from.the.reply|share.one.token|given-up.owner|renewal.goes.on|first.reader.to.leave
MUTANTS   ?= $(FIVE)
FEW       := LOCKAROUND_SIM_SCHEDULES=50 LOCKAROUND_REDLOCK_SCHEDULES=50 LOCKAROUND_PROTOCOL_STEPS=1500
MORE      := # of what test-full does more often
MORE_LONG := LOCKAROUND_ACQUISITIONS=1000 LOCKAROUND_PROTOCOL_STEPS=4000

FUZZTIME  ?= 30s

# Where the fault laboratory keeps locks besides in Redis.
OTHERS := valkey sentinel cluster quorum etcd postgres mariadb zookeeper

# They run long, count, or repeat what another test shows once. Their names are whole.
LONG := TestBrokenDriversWear TestClusterNodeOfTheSubscriptionMayDie TestClusterReshardingLosesNoLease \
	TestConformanceOfAnEnsemble TestConformanceOverModelledNodes TestConformanceUnderMinimalACL TestCrowdIsLetInOneByOne \
	TestCrowdIsLetInOneByOneByACluster TestEachExpiryIsOneLoadOverProcesses TestEachPeerServesAllCallers TestEndurance \
	TestEnginesTakeTurns TestFuzzedKeysStayApart TestGuardedCounterOfManyEnginesCountsEach TestHandOverCostsWithManyWaiters \
	TestHeldLeaseCostsNoGoroutine TestHeldLeaseCostsNoGoroutineAndLittleMemory \
	TestIdleWorkerHearsAndAsksSeldom TestJobIsRunOnceATickByProcessesOfWhichSomeAreKilled TestKeysGoAndComeUnderLoad TestKeysOfABodyAreRefusedWithOtherDecoders \
	TestKeyWithoutHolderAndWaitersTakesNoMemory TestKilledLoadersAreSucceededOverProcesses TestLeaderKilledUnderLoad \
	TestLeaderKilledUnderLoadOverlapsNobody TestMutantsAreCaught TestNobodyGetsWhatWasInvalidatedBeforeOverProcesses \
	TestOfEightWhoDoNotWaitOneIsServed TestPurgeBesideUsersLetsNobodyInTwice TestReadersAndWritersShareAKeyFairly \
	TestReleasesAreMadeOneAfterTheOther TestReleasesShareARedis TestReleasesShareThreeRedisServers \
	TestSentinelFailoverThatLosesWritesTellsTheOldHolder TestTablesAreSmallAfterAThousandKeysAndTokensGoOn \
	TestThousandWaitersInTwentyProcessesCostTwoCommandsAHandOver TestTokensNeverGoBackWhileNodesAreKilledInTurn \
	TestTokensRiseOverEvictions TestTokensRiseThoughANodesClockJumpsByAnHour \
	TestTokensRiseThoughTheServersClockJumpsByAnHour TestTwoOfFiveDeadAndOneBackEmptyLetNobodyInTwice
long := ^($(subst $() $(),|,$(strip $(LONG))))$$

# They are of test-full too, which fails without the server: nothing else says that Valkey serves.
ON_VALKEY := OnValkey$$

.PHONY: test test-full test-long flakes servers suite lint check check-here check-elsewhere proto proto-check \
	tests-main tests-nested long-main long-nested on-valkey simulation short-simulation schedules newest-tests \
	fuzz model bench peers caches queues faults figures newest

test: suite
	@rm -f $(LOGS)/*.json $(LOGS)/*.skipped; .ci/step "servers and compiler" .ci/servers
	@.ci/step "go.mod is tidy, generated code is current, types check on other systems" $(MAKE) check
	@status=0; .ci/step "tests; beside them a short simulation, and vet in golangci-lint $(LINT_VERSION), which is built if it is missing" \
		$(MAKE) -k -j4 LOGS=$(LOGS) tests-main tests-nested short-simulation lint || status=1; \
	.ci/step "what was found" .ci/found $(LOGS) $(MISSING) || status=1; exit $$status

test-full: suite
	@rm -f $(LOGS)/*.json $(LOGS)/*.skipped; .ci/step "servers and compiler" .ci/servers
	@status=0; .ci/step "the long tests" $(MAKE) -k -j2 LOGS=$(LOGS) MORE='$(MORE_LONG)' long-main long-nested on-valkey || status=1; \
	.ci/step "simulation, $(SCHEDULES) schedules; tests against the newest Go, gin, grpc, go-redis and OpenTelemetry" \
		$(MAKE) -k -j2 LOGS=$(LOGS) MORE='$(MORE_LONG)' simulation newest-tests || status=1; \
	.ci/step "what was found" .ci/found $(LOGS) $(MISSING) || status=1; exit $$status

RUNS   ?= 20
LOAD   ?= 0
TARGET ?= test
flakes: suite
	@.ci/flakes $(RUNS) $(LOAD) $(TARGET) .bin/flakes

suite:
	@go build -o $(SUITE) ./core/lab/suite

servers:
	@.ci/servers

# A mirror of modules may fail now and then, and is asked though the module is there.
$(LINT):
	@export GOBIN="$(CURDIR)/$(dir $(LINT))"; for try in 1 2 3; do \
		nice go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) && exit; sleep 5; \
	done; exit 1

# It is busy while the tests wait, and gives way to them. It takes packages as they are
# compiled for the race detector, which the tests need anyway. vet is one of the linters.
lint: $(LINT)
	@GOFLAGS="$(DETECTOR)" GOWORK=off nice $(LINT) run --allow-serial-runners
	@GOFLAGS="$(DETECTOR)" nice $(LINT) run --allow-serial-runners $(NESTED:%=./%/...)
	@go build -o $(LOCKVET) ./decorator/lockvet && nice go vet -vettool=$(CURDIR)/$(LOCKVET) ./... $(NESTED:%=./%/...)

check: proto-check check-here check-elsewhere

check-here:
	@GOWORK=off go mod tidy -diff
	@for m in $(NESTED) $(CASES); do .ci/tidy $$m; done
	@for m in $(LOCKGEN); do (cd $$m && GOFLAGS="$(DETECTOR)" go tool lockgen -check ./...); done
	@for name in $(LONG); do git grep -q "^func $$name(" -- '*_test.go' || { echo "LONG in the Makefile names $$name, and there is no such test" >&2; exit 1; }; done

# One system that is not unix, one that is not Linux; one processor of another make, and one
# of 32 bits. The laboratory stops and measures processes as only unix can.
check-elsewhere: suite
	@$(SUITE) system windows/386 ./... $(patsubst %,./%/...,$(filter-out core/lab,$(NESTED)))
	@$(SUITE) system darwin/arm64 ./... $(NESTED:%=./%/...)

$(PROTOC_GEN_GO):
	@GOBIN="$(CURDIR)/$@.d" go install google.golang.org/protobuf/cmd/protoc-gen-go@$(lastword $(subst -, ,$@))
	@mv $@.d/protoc-gen-go $@ && rmdir $@.d

$(PROTOC_GEN_GO_GRPC):
	@GOBIN="$(CURDIR)/$@.d" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(lastword $(subst -, ,$@))
	@mv $@.d/protoc-gen-go-grpc $@ && rmdir $@.d

# protoc OUT generates into that folder, which stands for the module's. Users know lock.proto
# by its path below interceptor/lockpb, and so does every program's registry.
define protoc
protoc --plugin=protoc-gen-go=$(PROTOC_GEN_GO) --plugin=protoc-gen-go-grpc=$(PROTOC_GEN_GO_GRPC) -I interceptor/lockpb -I . \
	--go_out=$(1) --go_opt=module=$(MODULE) --go-grpc_out=$(1) --go-grpc_opt=module=$(MODULE) $(PROTOS)
endef

proto: $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC)
	@$(call protoc,.)

proto-check: $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC)
	@if grep -qx protoc $(MISSING) 2>/dev/null; then exit 0; fi; \
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; $(call protoc,"$$dir"); \
	(cd "$$dir" && find . -name '*.go') | while read -r f; do \
		diff -q "$$dir/$$f" "$$f" || { echo "$$f is not what its .proto generates: run make proto" >&2; exit 1; }; \
	done

# Most of the time tests wait, so more of them run at a time than there are cores. Those of
# the main module that take longest come first. vet looks at it beside them. What
# one goroutine does step by step is done in few steps here, and in more by test-full.
FIRST := ./core/redislock ./core/redlock ./core/drivertest ./decorator
GOTEST = env CGO_ENABLED=1 $(REQUIRE) $(FEW) $(MORE) $(CURDIR)/.ci/scratch $(CURDIR)/$(SUITE) run
FLAGS  = $(DETECTOR) -vet=off -parallel 5 -count=1 -timeout=30m

tests-main:
	@export GOWORK=off; $(GOTEST) -log $(LOGS)/main.json $(FLAGS) -p 2 -skip '$(long)|$(ON_VALKEY)' $(FIRST) \
		$$(go list ./... | grep -v -x -F "$$(go list $(FIRST))")

tests-nested:
	@printf '%s\n' $(NESTED) | xargs -P 2 -I{} bash -c 'log=$(abspath $(LOGS))/$$(echo {} | tr / .).json; \
		cd {} && $(GOTEST) -log $$log $(FLAGS) -p 1 -skip '\''$(long)|$(ON_VALKEY)'\'' ./...'

# Only packages that have long tests are built for them.
long_in = git grep -lE 'func ($(subst $() $(),|,$(strip $(LONG))))\(' -- '*_test.go'
folders = xargs -r -n 1 dirname | sort -u | sed 's,^,./,'

long-main:
	@export GOWORK=off; $(GOTEST) -log $(LOGS)/long.json $(FLAGS) -p 2 -run '$(long)' $$($(long_in) $(NESTED:%=':!%') | $(folders))

long-nested:
	@printf '%s\n' $(NESTED) | xargs -P 2 -I{} bash -c 'log=$(abspath $(LOGS))/long.$$(echo {} | tr / .).json; \
		cd {} && all=$$($(subst ','\'',$(long_in)) | $(subst ','\'',$(folders))) && [[ -z $$all ]] || $(GOTEST) -log $$log $(FLAGS) -p 1 -run '\''$(long)'\'' $$all'

on-valkey: REQUIRE := LOCKAROUND_REQUIRE_SERVERS=1
on-valkey:
	@GOWORK=off $(GOTEST) -log $(LOGS)/valkey.json $(FLAGS) -run '$(ON_VALKEY)' ./core/redislock
	@cd core/lab && $(GOTEST) -log $(abspath $(LOGS))/valkey.core.lab.json $(FLAGS) -run '$(ON_VALKEY)' ./faults

# It goes by a clock of its own, so other tests, which mostly wait, may go beside it.
simulation: schedules
	@LOCKAROUND_SIM_SCHEDULES=$(SHARE) GOGC=400 nice $(SUITE) run -log $(LOGS)/mutants.json -count=1 -timeout=30m -run '^TestSimulationCatchesMutants$$/($(MUTANTS))' ./core/redislock

short-simulation:
	@$(MAKE) schedules SCHEDULES=1000 SHARE=500

schedules:
	@mkdir -p .bin && go test -c -o .bin/simulation.test ./core/redislock
	@cd core/redislock && seq 1 $(SHARE) $(SCHEDULES) | GOMAXPROCS=1 GOGC=400 LOCKAROUND_SIM_SCHEDULES=$(SHARE) xargs -P 2 -I{} \
		sh -c 'LOCKAROUND_SIM_SEED={} nice ../../.bin/simulation.test -test.timeout=60m -test.run "^TestSimulation$$" && echo "ok	$(SHARE) schedules from seed {}"'

# What kills processes, counts or endures says nothing of a release that the rest does not. The
# toolchain line of newest.mod names the newest Go. Where that cannot be had, the tests run with
# the Go that there is, and .ci/found says so: what a proxy serves is no fault of the tree.
newest-tests:
	@export GOWORK=off; newest=$$(sed -n 's/^toolchain //p' .ci/newest.mod); \
	if GOTOOLCHAIN=$$newest go version; then export GOTOOLCHAIN=$$newest; else \
		mkdir -p $(LOGS); echo "the newest Go, $$newest, which cannot be fetched here; the newest dependencies were tested with $$(go env GOVERSION)" >$(LOGS)/newest.skipped; \
	fi; \
	$(GOTEST) -log $(LOGS)/newest.json -vet=off -modfile=.ci/newest.mod -parallel 5 -count=1 -timeout=30m \
		-skip '$(long)|$(ON_VALKEY)|OverProcesses$$|ByProcessesOfWhichSomeAreKilled$$|^TestSimulation' \
		. ./core ./core/policies ./core/fence/... ./core/redislock/... ./core/redlock ./middleware/... ./interceptor/... ./decorator ./decorator/cache/... ./examples/...

test-long:
	@.ci/step "servers and compiler" .ci/servers
	@.ci/step "simulation, 100,000 schedules and all mutants" $(MAKE) simulation SCHEDULES=100000 MUTANTS=.
	@.ci/step "simulation of a quorum, 20,000 schedules and its mutants" env LOCKAROUND_REDLOCK_SCHEDULES=20000 go test -count=1 -timeout=60m -run '^TestSimulation' ./core/redlock
	@.ci/step "the Redis scripts beside their models, 100,000 random steps each" env LOCKAROUND_PROTOCOL_STEPS=100000 go test -count=1 -v -timeout=20m -run '^TestScripts(FollowTheReference|DoWhatTheModelDoes)$$' ./core/redislock/internal/protocol ./core/redlock
	@.ci/step "kill -9 of the holder, 100 times" env LOCKAROUND_KILLS=100 go test -count=1 -v -timeout=20m -run '^TestKilledHolder' ./core/redislock
	@.ci/step "Sentinel failovers that lose writes, 20 times" env LOCKAROUND_FAILOVERS=20 go test -count=1 -v -timeout=20m -run '^TestSentinel' ./core/redislock
	@.ci/step "a cache refilled by 4 processes, 100 expiries, 10 kills" env LOCKAROUND_EXPIRIES=100 go test -count=1 -v -timeout=20m -run 'OverProcesses$$' ./decorator
	@.ci/step "serial functions over 4 processes, 30,000 items, 100 kills" env LOCKAROUND_SERIAL_ITEMS=30000 LOCKAROUND_KILLS=100 go test -count=1 -v -timeout=30m -run '^(TestHistoryOverProcesses|TestKilledWorkerIsReplacedWithinItsTTL)$$' ./decorator
	@.ci/step "mistakes of serial functions and their stores" env LOCKAROUND_SERIAL_MUTANTS=1 go test -count=1 -v -timeout=40m -run '^TestMistakesOfSerialFunctionsAreFound$$' ./decorator
	@.ci/step "items once each in PostgreSQL, 500 kills" sh -c 'cd core/lab/databases/fence && LOCKAROUND_SERIAL_KILLS=500 go test -count=1 -v -timeout=30m -run "^TestKilledWorkersLeave" .'
	@.ci/step "queues in databases, 200 workers killed, connections killed for 60 s" sh -c 'cd core/lab/databases/queues && LOCKAROUND_KILLED_WORKERS=200 LOCKAROUND_KILLING=60s go test -count=1 -v -timeout=30m -run "^TestKilled" .'
	@.ci/step "serial functions over 4 processes in databases that are restarted and killed, 100,000 items" sh -c 'cd core/lab/databases/queues && LOCKAROUND_SERIAL_ITEMS=100000 go test -count=1 -v -timeout=60m -run "^TestHistoryOver" .'
	@.ci/step "queues in ZooKeeper, which is killed: 100,000 items, 100 workers killed, mistakes of the store" sh -c 'cd core/lab/zookeeper/queues && LOCKAROUND_SERIAL_ITEMS=100000 LOCKAROUND_KILLED_WORKERS=100 LOCKAROUND_SERIAL_MUTANTS=1 go test -count=1 -v -timeout=120m .'
	@.ci/step "a Cluster resharded for 60 s" env LOCKAROUND_RESHARD=60s go test -count=1 -v -timeout=20m -run '^TestCluster' ./core/redislock
	@.ci/step "databases whose connections are killed for 60 s" sh -c 'cd core/lab/databases/sqllock && LOCKAROUND_KILLING=60s go test -count=1 -v -timeout=20m -run "^TestKilledConnections|AsTheDriverComes" .'
	@.ci/step "the fault laboratory, 5 minutes on Redis and 2 on each other store" sh -ec 'go run ./core/lab/faults -time 5m; \
		for store in $(OTHERS); do go run ./core/lab/faults -store $$store -time 2m; done'
	@.ci/step "what is promised in milliseconds, which wants a quiet machine" env LOCKAROUND_FIGURES=1 go test -count=1 -v -timeout=20m -run '^(TestReadersAndWritersShareAKeyFairly|TestLostPushDelaysAWaiterByWakeAtMost|TestKilledConnectionsAreReplaced|TestAbandonedHolderAndHeadDelayTheNextByTheirLimits)$$' ./core/redislock
	@.ci/step "fuzz, $(FUZZTIME) each" $(MAKE) fuzz

# go test fuzzes one target at a time.
fuzz:
	@go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... $(NESTED:%=./%/...) | while read -r pkg; do \
		for target in $$(go test -list '^Fuzz' "$$pkg" | { grep '^Fuzz' || true; }); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
		done; \
	done

model:
	@core/redislock/internal/protocol/model/check
	@decorator/queue/model/check

bench:
	@.ci/servers
	@go test -run '^$$' -bench . -benchmem ./...

peers:
	@.ci/servers
	@go run ./core/lab/peers -out core/lab/peers/results -readme core/lab/peers/README.md
	@go run ./core/lab/peers -awake -only '^(free|one-key|one-shot|fairness)' -out core/lab/peers/results/awake

caches:
	@.ci/servers
	@go run ./core/lab/caches -awake -out core/lab/caches/results

queues:
	@.ci/servers
	@go run ./core/lab/queues -awake -out core/lab/queues/results

faults:
	@.ci/servers
	@go run ./core/lab/faults -out core/lab/faults/results
	@for store in $(OTHERS); do go run ./core/lab/faults -store $$store -out core/lab/faults/results/$$store; done

# make figures ONLY='7|13' DRIVER='redislock.*' runs a part, and leaves the other rows as they are.
figures:
	@.ci/servers
	@go run ./core/lab/figures -out core/lab/figures/results -only '$(ONLY)' -driver '$(DRIVER)'

newest:
	@cp go.mod .ci/newest.mod && cp go.sum .ci/newest.sum
	@GOWORK=off go get -modfile=.ci/newest.mod $(NEWEST)
	@GOWORK=off go mod tidy -modfile=.ci/newest.mod
