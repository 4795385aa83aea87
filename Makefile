# What people do here. Needs make, Python 3.11 or newer with pip, and nothing else; the nvml tests also need a C compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
PYTEST_ARGS ?=
BENCH ?= $(sort $(basename $(notdir $(wildcard benchmarks/[a-z]*.py))))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test quick integration lint format gen lock bench clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 make setup    another interpreter; ARGS='--scenario reject' make demo    options of the demo;"
	@echo "  PYTEST_ARGS='-k ladder' make test    fewer tests"

setup: $(READY) ## Make .venv from the lock file; quick when nothing changed.

$(READY): requirements.lock pyproject.toml scripts/setup
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup
	@touch $@

demo: $(READY) ## Set up and watch a bad GPU become a healthy node. ARGS='--scenario NAME --interactive'.
	@$(BIN)/kintsugi demo $(ARGS)

test: lint ## Set up, lint, check types and import contracts, run all tests that need only this machine.
	@echo "== tests (tests/integration has its own target)"
	@$(BIN)/python -m pytest --ignore=tests/integration $(PYTEST_ARGS)

quick: $(READY) ## Run the tests that start no processes of their own.
	@$(BIN)/python -m pytest --ignore=tests/integration -m "not processes and not kmsg and not nvml" $(PYTEST_ARGS)

integration: $(READY) ## Run the tests on real parts: killed processes, the kernel log, NVML's ABI, tests/integration.
	@echo "== tests on real parts"
	@$(BIN)/python -m pytest -m "processes or kmsg or nvml or integration" $(PYTEST_ARGS)

lint: $(READY) ## Check style, format, types and import contracts; changes nothing.
	@echo "== ruff: style"
	@$(BIN)/ruff check .
	@echo "== ruff: format"
	@$(BIN)/ruff format --check .
	@echo "== mypy: types"
	@$(BIN)/mypy .
	@echo "== import-linter: who may import whom"
	@$(BIN)/lint-imports

format: $(READY) ## Format the code and apply the safe fixes.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

gen: $(READY) ## Generate wire/v1 from protos/ (committed; a test proves it fresh).
	@$(BIN)/python scripts/gen_protos.py .

lock: ## Resolve the lock files anew; needs uv (`pip install uv`).
	@sh scripts/lock

bench: $(READY) ## Measure, side by side with what it is compared to. BENCH=kernel_log_scan for one alone.
	@for each in $(BENCH); do echo "== $$each"; $(BIN)/python -m benchmarks.$$each $(ARGS) || exit 1; done

clean: ## Remove .venv, caches and what builds leave behind.
	@rm -rf $(VENV) build dist ./*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
