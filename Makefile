# make help prints the targets. Continuous integration runs .ci/run.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The modules besides the main one, which is tested without the workspace where its lowest dependencies matter.
NESTED := core/etcdlock core/zklock decorator/queue/zkqueue core/lockctl decorator/lockgen decorator/lockvet core/lab examples/extra
ALL    := ./... $(NESTED:%=./%/...)

# The other drivers, with their tests on servers.
DRIVERS := ./core/etcdlock/... ./core/zklock/... ./decorator/queue/zkqueue/... ./core/lab/databases/... ./core/lab/zookeeper/...

# make test has the race detector only where goroutines share memory by locks and atomics of our own:
# in the engine, what drivers are made of, and the driver in memory.
RACE := ./core ./core/internal/kit ./core/internal/manager ./core/internal/signals ./core/memlock

# Tests mostly wait, so more run at a time than there are cores.
GOTEST := -vet=off -p 4 -parallel 16 -timeout 20m

NEWER := $(addprefix test-newer-,redis valkey etcd zookeeper postgres)

.PHONY: help test test-etcd test-zookeeper test-postgres test-mariadb test-valkey test-newer $(NEWER) test-stores lint golangci lockvet check race test-full \
	test-long flakes generated proto model fuzz bench peers caches queues sizing faults figures

## help: print this
help:
	@sed -nE 's/^## ([a-zA-Z, -]+): /\1\t/p' Makefile | expand -t 24

## test: the main module on Redis, its generated code, and vet: minutes; the first thing to run
test: generated
	@GOWORK=off .ci/tests test redis $(GOTEST) -short -vet=all \
		$$(GOWORK=off go list ./... | grep -vxF "$$(go list $(RACE))") -- $(GOTEST) -short -vet=all -race $(RACE)

## test-STORE: conformance and faults of one other store: etcd, zookeeper, postgres, mariadb or valkey
test-etcd:
	@.ci/tests etcd etcd $(GOTEST) ./core/etcdlock/...

test-zookeeper:
	@.ci/tests zookeeper zookeeper $(GOTEST) ./core/zklock/... ./decorator/queue/zkqueue/... ./core/lab/zookeeper/...

test-postgres:
	@.ci/tests postgres "postgres redis" $(GOTEST) -skip '/^MariaDB$$|OnMariaDB$$' ./core/lab/databases/...

test-mariadb:
	@.ci/tests mariadb "mariadb redis" $(GOTEST) -skip '/^PostgreSQL$$|OnPostgreSQL$$' ./core/lab/databases/...

test-valkey:
	@.ci/tests valkey valkey $(GOTEST) -run 'OnValkey$$' ./core/redislock ./core/lab/faults

## test-newer: the newest servers of Debian's newer suites, unpacked into .bin: tests, and a minute of faults each
test-newer: $(NEWER)

$(NEWER): test-newer-%:
	@.ci/newer $* test $(GOTEST)

## test-stores: all five, the longest first
test-stores: test-zookeeper test-postgres test-mariadb test-etcd test-valkey

## lint: golangci-lint, lockvet, and check
lint: golangci lockvet check

golangci:
	@GOWORK=off $(GOLANGCI) run
	@$(GOLANGCI) run $(NESTED:%=./%/...)

lockvet:
	@go build -o .bin/lockvet ./decorator/lockvet && go vet -vettool=$(CURDIR)/.bin/lockvet $(ALL)

## check: are modules tidy, is generated code current, do types check on Windows, macOS, arm64 and 386?
check: generated
	@.ci/tidy . decorator/lockvet/testdata $(NESTED)
	@go run ./core/lab/systems windows/386 ./... $(patsubst %,./%/...,$(filter-out core/lab,$(NESTED))) ./core/lab/{databases,zookeeper,browser,clients,dashboards}/...
	@go run ./core/lab/systems darwin/arm64 $(ALL)

## race: short tests of all that users import (of databases the conformance) under the race detector, with the newest gin, grpc, go-redis, OpenTelemetry
race:
	@raced="-race -short -vet=off -p 3 -parallel 8 -timeout 30m"; \
	.ci/tests race "redis etcd zookeeper postgres mariadb compiler" $$raced ./... $(filter-out ./core/lab/%,$(DRIVERS)) -- \
		$$raced -run Conformance $(filter ./core/lab/%,$(DRIVERS))

## test-full: what is left: long tests, laboratories, tools, examples, bugs that must be caught
test-full:
	@.ci/tests full "redis etcd zookeeper postgres mariadb prometheus chromium compiler" $(GOTEST) \
		-skip 'OnValkey$$' ./core/lab/release $$(.ci/packages $(NESTED) -- $(DRIVERS) ./core/lab/release)

## test-long: hours: more simulation, more kills, and time for each fuzz target
test-long:
	@.ci/long

## flakes: make test many times: RUNS=20, beside LOAD=5 endless builds; TARGET=race runs that
flakes:
	@.ci/flakes $(or $(RUNS),20) $(or $(LOAD),0) $(or $(TARGET),test)

## generated: is the code of lockgen and of the .proto files current?
generated:
	@for m in core/lab/clients examples/extra/orders; do (cd $$m && go tool lockgen -check ./...); done
	@if command -v protoc >/dev/null; then .ci/proto check; else echo "skipped: the code of .proto files, which needs protoc"; fi

## proto: generate the code of the .proto files; needs protoc
proto:
	@.ci/proto

## model: check the models of the Redis protocol and of serial queues; needs spin and gcc
model:
	@core/redislock/internal/protocol/model/check
	@decorator/queue/model/check

## fuzz: each fuzz target for FUZZTIME=30s
fuzz:
	@.ci/fuzz $(or $(FUZZTIME),30s) $(ALL)

## bench: the benchmarks
bench:
	@go test -run '^$$' -bench . -benchmem ./...

## peers, caches, queues: lockaround beside other libraries, for the results in core/lab
peers:
	@go run ./core/lab/peers -out core/lab/peers/results -readme core/lab/peers/README.md
	@go run ./core/lab/peers -awake -only '^(free|one-key|one-shot|fairness)' -out core/lab/peers/results/awake

caches queues:
	@go run ./core/lab/$@ -awake -out core/lab/$@/results

## sizing: what locks cost a Redis server, for core/lab/sizing/results
sizing:
	@go run ./core/lab/sizing -out core/lab/sizing/results

## faults: the fault laboratory, for core/lab/faults/results
faults:
	@go run ./core/lab/faults -out core/lab/faults/results
	@for store in valkey sentinel cluster quorum etcd postgres mariadb zookeeper; do \
		go run ./core/lab/faults -store $$store -out core/lab/faults/results/$$store; done

## figures: the twenty figures in full, which takes hours; ONLY='7|13' DRIVER='redislock.*' runs a part
figures:
	@go run ./core/lab/figures -out core/lab/figures/results -only '$(ONLY)' -driver '$(DRIVER)'
