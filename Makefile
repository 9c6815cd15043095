# Whatever needs .venv makes it first; a fresh machine needs only Python 3.11 or newer, make and Java 17 or newer.

SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# Tests in parallel; pytest-xdist. One more than two cores: for nearly half of its time a test waits, for processes that
# start, for silences, for a disk. Also `make test JOBS=0` to see output and use a debugger.
JOBS ?= 3
# An interpreter of your choice: make venv PYTHON=/path/to/python. Empty: .ci/venv takes the first that fits.
PYTHON ?=
export PYTHON

EXTRAS := sim,dev

# Compiled bytecode is kept, whatever the shell says: dozens of processes would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)$$/  make \1|\2/p' Makefile | \
	    awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

.PHONY: venv
venv: $(VENV)/.stamp ## make .venv with everything pinned in constraints.txt (once; later only when that changes)

# The stamp is written last, so an interrupted installation leaves none and the next make starts it over.
$(VENV)/.stamp: pyproject.toml constraints.txt .ci/venv
	@.ci/venv $(VENV) $(EXTRAS)
	@touch $@

.PHONY: demo
demo: venv ## a cluster on this host: kill a gateway, miss nothing, check every answer
	@$(BIN)/hullcast demo

# What all of pytest's workers need is compiled beside lint, once, and not by each of them: kernels, then the tests
# themselves (which `--collect-only` does; what it finds wrong, the real run shows).
.PHONY: test
test: venv ## what CI runs: lint, then all tests but the slow ones
	@$(MAKE) --no-print-directory -j2 lint compiled
	$(BIN)/pytest -n $(JOBS) --dist loadgroup

.PHONY: compiled
compiled: venv ## compile kernels and tests, which `make test` does beside lint
	$(BIN)/hullcast warm
	-@$(BIN)/pytest --collect-only -q > /dev/null

.PHONY: test-slow
test-slow: venv ## only the tests marked slow
	$(BIN)/pytest -n $(JOBS) --dist loadgroup -m slow

.PHONY: test-cluster
test-cluster: venv ## a Spark cluster of two workers that share no disk, compared with this machine
	$(BIN)/pytest -m cluster

.PHONY: test-soak
test-soak: venv ## minutes of load and faults on a cluster (HULLCAST_SOAK_MINUTES=4)
	$(BIN)/pytest -m soak -s

.PHONY: lint
lint: venv ## style, formatting, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: venv ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: map
map: venv ## write MAP.md anew, from the first lines of all modules
	$(BIN)/python -m tests.support.code_map

.PHONY: bench
bench: venv ## the engine's benchmark, quick form
	@$(BIN)/hullcast bench engine --quick

# Numba's compiled kernels live in __pycache__ and go with it: the next run compiles again.
.PHONY: clean
clean: ## remove caches and build output; .venv stays
	rm -rf build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

.PHONY: clean-all
clean-all: clean ## remove .venv as well
	rm -rf $(VENV)
