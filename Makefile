# Everything that is done with a checkout.  `make demo` and `make test` need only
# Python >= 3.10, git and apt; they make .venv themselves.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

help:  ## say what can be made
	@grep -hE '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

.venv/ready: tests/requirements.txt pyproject.toml
	@tests/need python3-venv
	$(PYTHON) -m venv --clear .venv
	$(PIP) install --require-hashes --only-binary :all: -r tests/requirements.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

check: .venv/ready  ## lint, format, types, layers (2 minutes at most)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: .venv/ready  ## every test, and the unit tests on the oldest and newest Python
	@tests/need prometheus chromium
	$(BIN)/pytest -n 2 --dist loadgroup
	$(BIN)/python tests/interpreters.py

demo: .venv/ready  ## the main job on the simulated server, under two minutes
	$(BIN)/hpuwatch demo

bench: .venv/ready  ## speed and memory, as ratios against a reference of the same run
	@tests/need mtail ripgrep
	$(BIN)/python -m tests.bench.bench

soak: .venv/ready  ## long runs: restarts, kills and load for many minutes
	$(BIN)/pytest -n 0 -m soak --timeout 3600 tests/soak

docs: .venv/ready  ## write the generated pages of docs/ anew
	$(BIN)/python tests/docs.py

goldens: .venv/ready  ## write anew what we make of the logs in tests/golden
	$(BIN)/python tests/golden.py

requirements:  ## pin the developer tools anew (hashes, no index addresses)
	$(BIN)/uv pip compile pyproject.toml --extra tune --group dev --universal -p 3.10 --generate-hashes \
	  --custom-compile-command "make requirements" --upgrade -q -o tests/requirements.txt

clean:  ## remove what was made
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help check test demo bench soak docs goldens requirements clean
