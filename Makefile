# Needs Python 3.11 or newer (3.10 for the reporter alone) and make; the rest it sets up by itself, under .venv and .venv-uv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := .venv-uv/bin/uv
SHELL := bash
FOLDERS := controller policies notifiers reporters tests examples benchmarks tools

export UV_NO_PROGRESS = 1

.PHONY: help setup demo test tests-in-clusters tests-of-the-rest quick check format lint types contracts generate wheels bench lock clean cluster-up cluster-down

help:  ## Say what can be made.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.ready  ## Make the virtual environment.

$(UV): requirements/bootstrap.txt
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(VENV)/.ready: $(UV) requirements/examples.txt pyproject.toml reporters/pyproject.toml
	$(UV) venv -q --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync -q --python $(BIN)/python --require-hashes requirements/examples.txt
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e ./reporters -e .
	@touch $@

demo: setup  ## Watch a real training go flat, be saved, suspended and told of.
	$(BIN)/trainwarden demo

cluster-up: setup  ## Start a real Kubernetes with trainwarden; CLUSTER=control-plane leaves the node out.
	@$(BIN)/python -m tools.cluster up

cluster-down: setup  ## Stop it, and leave nothing behind.
	@$(BIN)/python -m tools.cluster down

test: setup  ## Run every check and every test, two at a time: most of them wait.
	@$(MAKE) --no-print-directory -j2 check wheels tests-in-clusters tests-of-the-rest

# Two halves of about the same length. Each file is a line, once it is through.
CLUSTERS := tests/cluster tests/examples
tests-in-clusters: setup
	@set -o pipefail; $(BIN)/python -u -m pytest $(CLUSTERS) 2>&1 | sed -u 's/^/clusters | /'

tests-of-the-rest: setup
	@set -o pipefail; $(BIN)/python -u -m pytest $(CLUSTERS:%=--ignore=%) 2>&1 | sed -u 's/^/the rest | /'

quick: setup lint contracts types  ## The loop for developers: checks and the tests that train nothing.
	$(BIN)/python -m pytest -q -m 'not slow'

check: lint types contracts generated

format: setup  ## Format the code.
	$(BIN)/ruff format $(FOLDERS)
	$(BIN)/ruff check --fix $(FOLDERS)

lint: setup  ## Lint, and check the format.
	$(BIN)/ruff format --check $(FOLDERS)
	$(BIN)/ruff check $(FOLDERS)

types: setup  ## Check types, strictly.
	$(BIN)/mypy

contracts: setup  ## Check who imports whom.
	$(BIN)/lint-imports

generate: setup  ## Write the files made from the models: CRDs, tables in docs.
	$(BIN)/python -m tests.house.generate

generated: setup
	$(BIN)/python -m tests.house.generate --check

wheels: setup  ## Build both wheels, install each into a clean environment and try it there.
	$(BIN)/python -m tests.house.wheels

bench: setup .venv-bench/.ready  ## Measure speed and size, side by side with what others use.
	$(BIN)/python -m benchmarks
	.venv-bench/bin/python -m benchmarks reporter_import reporter_overhead

# What a report costs is measured beside W&B, TensorBoard and MLflow, which do not fit into one environment with us.
.venv-bench/.ready: $(UV) requirements/benchmarks.txt reporters/pyproject.toml
	$(UV) venv -q --allow-existing --python $(PYTHON) .venv-bench
	$(UV) pip sync -q --python .venv-bench/bin/python --require-hashes requirements/benchmarks.txt
	$(UV) pip install -q --python .venv-bench/bin/python --no-deps --no-build-isolation -e ./reporters
	@touch $@

lock: $(UV)  ## Resolve the versions anew.
	$(UV) pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/bootstrap.in -o requirements/bootstrap.txt
	$(UV) pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 --no-emit-package trainwarden-reporters pyproject.toml -o requirements/product.txt
	$(UV) pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 --no-emit-package trainwarden-reporters -c requirements/product.txt --extra operator pyproject.toml requirements/dev.in requirements/examples.in -o requirements/examples.txt
	$(UV) pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 --no-emit-package trainwarden-reporters -c requirements/examples.txt --extra operator pyproject.toml -o requirements/operator.txt
	$(UV) pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 requirements/benchmarks.in -o requirements/benchmarks.txt
	$(UV) pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.10 requirements/reporters.in -o requirements/reporters.txt

clean:  ## Remove what was made here.
	rm -rf $(VENV) .venv-uv .venv-bench dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
