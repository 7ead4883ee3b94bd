# Everything a person or a CI machine types. Each target prepares what it needs and can be run again.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build demo test test-rust test-clients chaos mutants lint bench bench-peers setup setup-test

# Which black-box tests to run, e.g. make test-clients TESTS='test_sdk_jobs.py -k stream'
TESTS ?=
DEV := target/debug/neap
RELEASE := target/release/neap

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "  make %-13s %s\n", $$1, $$2 }'

build: setup ## the neap program, optimised: target/release/neap
	cargo build --release --locked -p neap-cli

demo: build ## the whole story on this machine: a cluster rises from zero, trains, and falls back
	NEAP_BIN=$(CURDIR)/$(RELEASE) scripts/demo.sh

test: setup-test test-rust test-clients ## unit, property and CLI tests, then the real clients against the real server
	@echo "make test: everything passed"

test-rust: setup ## only the tests written in Rust
	@if command -v cargo-nextest >/dev/null 2>&1; then \
	  cargo nextest run --workspace --locked; \
	else \
	  cargo test --workspace --locked --quiet; \
	fi

test-clients: setup-test ## only the black-box suites (TESTS= chooses some)
	cargo build --locked -p neap-cli
	cd tests && NEAP_BIN=$${NEAP_BIN:-$(CURDIR)/$(DEV)} ../.venv-test/sdk/bin/python -m pytest $(TESTS)

# The long form of tests/chaos: how many processes are killed at random, and how long the load lasts.
NEAP_CHAOS_KILLS ?= 1000
NEAP_LOAD_SECONDS ?= 60

chaos: setup-test ## real processes: random kills, every crash point, partitions, full disk, overload (NEAP_CHAOS_KILLS=1000)
	cargo build --locked -p neap-cli
	cd tests && NEAP_BIN=$${NEAP_BIN:-$(CURDIR)/$(DEV)} NEAP_CHAOS_KILLS=$(NEAP_CHAOS_KILLS) NEAP_LOAD_SECONDS=$(NEAP_LOAD_SECONDS) \
	  ../.venv-test/sdk/bin/python -m pytest -s chaos

mutants: setup ## which of 300 small changes to decide, apply and plan the tests notice (an hour)
	cargo run --locked -p neap-mutants -- run --sample 300 --seed 1

lint: setup ## formatting, clippy (warnings are errors) and cargo deny (licences, sources, advisories)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/deny.sh
	@for script in scripts/*.sh bench/*.sh bench/peers/*.sh .ci/run; do bash -n "$$script"; done

bench: build ## the figures of README, beside the bare process-spawn rate of this machine
	NEAP_BIN=$(CURDIR)/$(RELEASE) bench/run.sh

bench-peers: build ## the same beside HyperQueue, Slurm, Ray and bare spawns, in one run (a quarter of an hour)
	NEAP_BIN=$(CURDIR)/$(RELEASE) bench/peers/run.sh

setup:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test
