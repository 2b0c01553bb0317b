# make test is the test command: it installs what is missing and runs everything.
#
#   make test        servers, lint, vet, all tests with the race detector, the
#                    simulation, and the surfaces against the newest releases
#   make test-long   more simulation, more kills, and time for each fuzz target
#   make lint        golangci-lint alone
#   make bench       the benchmarks
#   make model       check the models of the Redis protocol; needs spin
#   make newest      move .ci/newest.mod to the newest releases of dependencies

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := test

# For .ci/step, which shows the time since this target began.
export MAKE_BEGAN := $(shell date +%s)

# A test that cannot start its server fails here, where plain go test skips it.
export LOCKAROUND_REQUIRE_SERVERS := 1

LINT_VERSION := v2.15.0
LINT := .bin/golangci-lint-$(LINT_VERSION)/golangci-lint

# What newest.mod moves; go.mod requires the lowest releases that serve.
NEWEST := github.com/gin-gonic/gin@latest github.com/redis/go-redis/v9@latest \
	go.opentelemetry.io/otel@latest go.opentelemetry.io/otel/metric@latest \
	go.opentelemetry.io/otel/trace@latest go.opentelemetry.io/otel/sdk@latest \
	go.opentelemetry.io/otel/sdk/metric@latest

# The simulation has a step of its own without the race detector, which slows it
# down many times; the other steps run a few schedules of it.
SCHEDULES ?= 2000
FEW       := LOCKAROUND_SIM_SCHEDULES=100

FUZZTIME  ?= 30s

.PHONY: test test-long servers lint lint-tool vet race simulation newest-tests fuzz model bench newest

test:
	@.ci/step "servers and compiler" .ci/servers
	@.ci/step "golangci-lint $(LINT_VERSION): have it or build it" $(MAKE) lint-tool
	@.ci/step "lint" $(LINT) run --allow-serial-runners
	@.ci/step "vet, and go.mod is tidy" $(MAKE) vet
	@.ci/step "tests, with the race detector" $(MAKE) race
	@.ci/step "simulation, $(SCHEDULES) schedules" $(MAKE) simulation
	@.ci/step "tests against the newest gin, go-redis and OpenTelemetry" $(MAKE) newest-tests

servers:
	@.ci/servers

$(LINT):
	@GOBIN="$(CURDIR)/$(dir $(LINT))" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

lint-tool: $(LINT)
	@$(LINT) version

lint: $(LINT)
	@$(LINT) run --allow-serial-runners

vet:
	@go vet ./...
	@go mod tidy -diff

race:
	@CGO_ENABLED=1 $(FEW) go test -race -count=1 -timeout=8m ./...

simulation:
	@LOCKAROUND_SIM_SCHEDULES=$(SCHEDULES) go test -count=1 -timeout=60m -run '^TestSimulation' ./core/redislock

newest-tests:
	@$(FEW) go test -modfile=.ci/newest.mod -count=1 -timeout=8m \
		./core ./core/redislock ./middleware ./decorator ./examples/...

test-long:
	@.ci/step "servers and compiler" .ci/servers
	@.ci/step "simulation, 100,000 schedules" $(MAKE) simulation SCHEDULES=100000
	@.ci/step "kill -9 of the holder, 100 times" env LOCKAROUND_KILLS=100 go test -count=1 -v -timeout=20m -run '^TestKilledHolder' .
	@.ci/step "fuzz, $(FUZZTIME) each" $(MAKE) fuzz

# go test fuzzes one target at a time.
fuzz:
	@go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | while read -r pkg; do \
		for target in $$(go test -list '^Fuzz' "$$pkg" | { grep '^Fuzz' || true; }); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
		done; \
	done

model:
	@core/redislock/internal/protocol/model/check

bench:
	@.ci/servers
	@go test -run '^$$' -bench . -benchmem ./...

newest:
	@cp go.mod .ci/newest.mod && cp go.sum .ci/newest.sum
	@go get -modfile=.ci/newest.mod $(NEWEST)
	@go mod tidy -modfile=.ci/newest.mod
