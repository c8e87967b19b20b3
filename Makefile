# make run needs Go, git and make. make test brings what else it needs (scripts/deps, scripts/fetch) and says what it could not.

SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: build run test check bench chaos fresh clean tools linters deps clis

# Go refuses to work without a home for its caches; an empty environment is no reason to fail.
ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/.cache/home
endif

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
TOOLS   := .cache/tools

# What the tests are told. The published API descriptions lie beside the checkout in CI and are not ours to commit.
export PULSE_TEST_CLI_DIR := $(CURDIR)/.cache/cli/bin
ifneq ($(wildcard ../shared/specs),)
export PULSE_SPECS_DIR ?= $(abspath ../shared/specs)
endif

# The race detector is the only user of cgo, and needs a C compiler.
GO_TEST_FLAGS = -shuffle=on -timeout=15m $(if $(shell command -v gcc),-race)
WITH_CGO      = CGO_ENABLED=$(if $(shell command -v gcc),1,0)

build:
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

run: build
	bin/pulse demo

test: deps tools clis
	$(WITH_CGO) $(TOOLS)/pg -- $(TOOLS)/suite test $(GO_TEST_FLAGS) ./...

check: deps tools linters clis
	@scripts/check
	$(WITH_CGO) $(TOOLS)/pg -- $(TOOLS)/suite features $(GO_TEST_FLAGS)

# The figures of docs/benchmarks.md: the product beside its peers, in the same run. BENCH picks: make bench BENCH="-only M7".
bench: deps tools
	bench/run $(BENCH)

# The fault harness for as long as it takes (make test has a short one): about half an hour. CHAOS repeats a run, as in
# make chaos CHAOS='-chaos.kills=1000 -chaos.seed=1'.
CHAOS ?= -chaos.kills=1000
chaos: deps tools
	$(TOOLS)/pg -- go test -v -count=1 -timeout=2h ./e2e/chaos -chaos.long -chaos.time=90m $(CHAOS)
	go test -v -count=1 -timeout=1h ./e2e/matrix -matrix.healthy=500

# The proof that a clone is enough: make run and make test in a plain Debian root. Root only; takes minutes.
fresh:
	scripts/fresh

deps:
	@scripts/deps

tools:
	@mkdir -p $(TOOLS)
	@CGO_ENABLED=0 go build -o $(TOOLS)/ ./scripts/...

linters:
	@mkdir -p $(TOOLS)
	@CGO_ENABLED=0 go -C tools build -o $(CURDIR)/$(TOOLS)/ tool

clis: tools
	@$(TOOLS)/fetch || { test "$$CI" != true && echo "agent CLIs: none; the tests that drive them skip"; }

clean:
	rm -rf bin .cache
