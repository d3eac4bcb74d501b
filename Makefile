.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
ITEMS ?= 10000
REPETITIONS ?= 100
TOOL ?= python
REPEAT ?= 3
STEPS ?= 200
SLEEP_MS ?= 0
RUNS ?= 1000
SECONDS_ ?= 60
OUT ?= bench-results
BENCH_ARGS ?=
PYTEST_ARGS ?=
BIN := .venv/bin
PIP := .venv/bin/python -m pip --quiet --disable-pip-version-check --no-input
# A tenth of the time that pip takes; it reads indexes from its own settings, so pip may reach what it cannot.
UV_VERSION := 0.13.9
STAMP := .venv/.installed

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: install
install: $(STAMP) ## Make .venv and install everything the lock names, hashes checked

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "expected Python 3.11 or newer, found " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv ..."
	@$(PIP) install uv==$(UV_VERSION) \
		&& $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
		|| { echo "uv cannot install here, pip takes over"; $(PIP) install --require-hashes -r requirements.lock; }
	@$(PIP) install --no-deps -e .
	@touch $@

.PHONY: demo
demo: install ## Run the example from nothing: embedded database, 5,000 records fetched over HTTP, verified by SQL
	@$(BIN)/python -m examples.patient_flow

.PHONY: check
check: install ## Lint, format, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: test
test: install check ## Every gate and every test; starts the Postgres and NATS it needs itself
	@$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

.PHONY: fmt
fmt: install ## Format, and fix what can be fixed
	@$(BIN)/ruff check --fix . || true
	@$(BIN)/ruff format .

.PHONY: walk
walk: install ## Run one event's path through the house (docs/WALK.md)
	@$(BIN)/python -m pytest -q tests/system/test_walk.py

.PHONY: test-large
test-large: install ## The tests of large results at full size: a table of 10,000,000 rows, 10,000 results of every shape (an hour)
	@NOETL_TEST_TABLE_ROWS=10000000 NOETL_TEST_LOOP_ROWS=100000 NOETL_TEST_GENERATED_RESULTS=10000 \
		$(BIN)/python -m pytest -s -o timeout=7200 tests/system/test_tables.py tests/system/test_generated_results.py

.PHONY: bench-fanout
bench-fanout: install ## Measure a parallel loop of ITEMS=10000 items, TOOL=python or noop; ends in one JSON line
	@$(BIN)/python -m benchmarks.fanout --items $(ITEMS) --tool $(TOOL) --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-chain
bench-chain: install ## Measure one step after another: STEPS=200 of TOOL=python or noop, each sleeping SLEEP_MS=0
	@$(BIN)/python -m benchmarks.chain --steps $(STEPS) --tool $(TOOL) --sleep-ms $(SLEEP_MS) --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-starts
bench-starts: install ## Measure RUNS=1000 runs of one step, 32 in flight
	@$(BIN)/python -m benchmarks.starts --starts $(RUNS) --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-ingest
bench-ingest: install ## Measure the batch endpoint for SECONDS_=60 a phase: events a second, time to acknowledge
	@$(BIN)/python -m benchmarks.ingest --seconds $(SECONDS_) --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-flow
bench-flow: install ## Measure ITEMS=10000 items fetched over HTTP and put into Postgres one by one, beside asyncio alone
	@$(BIN)/python -m benchmarks.flow --items $(ITEMS) --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-fairness
bench-fairness: install ## Measure a lone run beside a loop of ITEMS=10000 items, and what is left at twice the load
	@$(BIN)/python -m benchmarks.fairness --items $(ITEMS) --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-replicas
bench-replicas: install ## Measure a fan-out of ITEMS=10000 items with 1 and 2 processes of each role
	@$(BIN)/python -m benchmarks.replicas --items $(ITEMS) --tool $(TOOL) --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-idle
bench-idle: install ## Measure what a stack costs that has nothing to do
	@$(BIN)/python -m benchmarks.idle --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-requests
bench-requests: install ## Measure what one request costs ingest's process before anything is done for it
	@$(BIN)/python -m benchmarks.requests --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: install ## Measure other systems doing the same, each from its own packages in a temporary folder
	@$(BIN)/python -m benchmarks.peers --runs $(REPEAT) $(BENCH_ARGS)

.PHONY: bench-all
bench-all: install ## Run every benchmark; JSON lines, a table and logs go to OUT=bench-results
	@$(BIN)/python -m benchmarks.every --out $(OUT) $(BENCH_ARGS)

.PHONY: bench-compact
bench-compact: install ## Measure folding, dropping, lineage and status reads; ends in one JSON line
	@$(BIN)/python -m benchmarks.compact

.PHONY: bench-verify
bench-verify: install ## Measure how fast a million events are verified, and the memory it takes; ends in one JSON line
	@$(BIN)/python -m benchmarks.verify

.PHONY: bench-status
bench-status: install ## Measure reads of a run's status beside a fan-out; ends in one JSON line
	@$(BIN)/python -m benchmarks.status

.PHONY: chaos
chaos: install ## Kill, freeze and cut off a stack of its own for SECONDS_=60 under load; ends in one JSON line
	@$(BIN)/noetl chaos --seconds $(SECONDS_)

.PHONY: bench-takeover
bench-takeover: install ## Kill, freeze and drain the owner of a shard REPETITIONS=100 times; ends in one JSON line
	@$(BIN)/python -m benchmarks.takeover --repetitions $(REPETITIONS)

.PHONY: races
races: install ## Run every order of the steps of every race (minutes); the tests run a sample
	@$(BIN)/python -m tests.races

.PHONY: faults
faults: install ## Write docs/FAULTS.md: what is decided for each fault, and the tests that show it
	@$(BIN)/python -m tests.fault_matrix

.PHONY: env-example
env-example: install ## Write .env.example, docs/CONFIG.md and the table of docs/LIMITS.md from the code
	@$(BIN)/python -m noetl_cli.reference

.PHONY: schema
schema: install ## Write docs/schema.sql: the dump of a freshly migrated database
	@$(BIN)/python -m noetl_cli.schema_dump

.PHONY: compose-env
compose-env: ## Write .env for docker compose: .env.example with passwords, tokens and a key of its own
	@$(PYTHON) deploy/compose_env.py

.PHONY: lock
lock: install ## Resolve the dependencies again into requirements.lock (pins and hashes, no URLs)
	@$(PIP) install uv==$(UV_VERSION)
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --upgrade \
		--generate-hashes --no-header --no-annotate --quiet --output-file requirements.lock

.PHONY: clean
clean: ## Remove .venv, caches and the laptop's state directory
	@test ! -d .noetl -o ! -x $(BIN)/noetl || $(BIN)/noetl down --purge || true
	@rm -rf .venv .noetl dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
