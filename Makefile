# One entry for everything a contributor runs. Each target sets up .venv by itself: only Python 3.11+ has to be there.

PYTHON ?= python3
WORKERS ?= 2
LOCK_FLAGS ?=

BIN := .venv/bin
RUNTIME := .venv/.runtime-ready
DEVELOPMENT := .venv/.development-ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# --no-compile below: bytecode is written at first import, for what is really imported.
# Nothing is fetched that is not pinned: hatchling and editables come from the locks, and the setuptools that builds
# PySpark (PyPI has it as source only) from a lock of its own, because it has to be there first.
INSTALL_LOCK := $(PIP) install --no-compile --require-hashes --no-build-isolation --requirement
INSTALL_ENSUE := $(PIP) install --no-deps --no-build-isolation --editable .
# Spark needs Java: where Ensue finds none that is new enough, it gets the one of the extra `java`, from a lock as well.
ENSURE_JAVA := $(BIN)/python -c 'from ensue.runtimes.spark.java import find_java; find_java()' 2>/dev/null || \
	{ echo "ensue: no Java 17 or newer here, adding one to .venv" >&2; $(INSTALL_LOCK) requirements-java.lock; }
# The page of `ensue report` is tested in a real Chromium: Debian's, where nothing is there and it can be installed.
ENSURE_CHROMIUM := command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && \
	echo "ensue: no Chromium here, adding that of Debian" >&2 && apt-get -qq update >/dev/null 2>&1 && \
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null 2>&1; } || \
	echo "ensue: no Chromium here, so the tests in a browser will be skipped" >&2
COMPILE := --quiet --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --no-emit-options $(LOCK_FLAGS)
PROJECT := --build-deps-for=editable

.DEFAULT_GOAL := help
.PHONY: help setup demo ready test test-slow test-all check format docs soak bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## a first result: a week of orders as a stream on Spark, its alerts as tables and as a page
	@$(ENSURE_JAVA)
	@$(BIN)/ensue demo

# Two workers: one has the tests that need Spark, with one Java process, the other one those that do not.
PYTEST := $(BIN)/pytest -n $(WORKERS)

ready: $(DEVELOPMENT) # what the tests need beside .venv: Java, and kernels that are compiled
	@$(ENSURE_JAVA)
	@$(BIN)/python -c "from ensue.kernels.warm_up import warm_up, warm_up_beliefs; warm_up(); warm_up_beliefs()"

test: ready ## the tests, in some minutes; the same draws each time (WORKERS=0 for one process)
	$(PYTEST)

test-slow: ready ## what `make test` leaves out: cluster, Connect, Kafka, Chromium, notebooks, the wheel, benchmarks, all cases on Spark
	@$(ENSURE_CHROMIUM)
	$(PYTEST) -m "slow and not soak"

test-all: test test-slow ## both

check: $(DEVELOPMENT) ## linter, formatter, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEVELOPMENT) ## let ruff format and mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(DEVELOPMENT) ## build the documentation site into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

soak: ready ## the long-running tests; PART= one of cases, stream, kills, setup, pages, inputs, benchmarks
	$(BIN)/pytest -m soak $(if $(PART),--part $(PART))

bench: $(DEVELOPMENT) ## benchmarks of start-up, of the core, of steps, of many patterns, of Spark, of constraints, of semantic windows, of rules and of probabilities
	@$(ENSURE_JAVA)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/patterns.py --spark
	$(BIN)/python benchmarks/spark.py
	$(BIN)/python benchmarks/constraints.py
	$(BIN)/python benchmarks/semantic_windows.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/probability.py

setup: $(DEVELOPMENT) ## only set up .venv

lock: ## write the lock files again (LOCK_FLAGS=--upgrade for newer versions)
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && \
	$(PYTHON) -m venv "$$tools" && "$$tools/bin/pip" install --quiet pip-tools==7.6.2 && \
	export CUSTOM_COMPILE_COMMAND="make lock" && \
	echo 'setuptools>=77' | "$$tools/bin/pip-compile" $(COMPILE) --output-file requirements-build.lock - && \
	"$$tools/bin/python" -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["java"])' | \
	"$$tools/bin/pip-compile" $(COMPILE) --output-file requirements-java.lock - && \
	"$$tools/bin/pip-compile" $(COMPILE) $(PROJECT) --output-file requirements.lock pyproject.toml && \
	"$$tools/bin/pip-compile" $(COMPILE) $(PROJECT) --extra dev --constraint requirements.lock \
		--output-file requirements-dev.lock pyproject.toml

clean: ## remove .venv, caches and builds
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks dist build site
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=...")'
	@echo "ensue: setting up .venv, once, in about a minute" >&2
	@$(PYTHON) -m venv .venv

$(RUNTIME): requirements.lock requirements-build.lock pyproject.toml | $(BIN)/python
	@$(INSTALL_LOCK) requirements-build.lock
	@$(INSTALL_LOCK) requirements.lock
	@$(INSTALL_ENSUE)
	@touch $@

# The development lock holds everything that the runtime lock holds, in the same versions.
$(DEVELOPMENT): requirements-dev.lock requirements.lock requirements-build.lock pyproject.toml | $(BIN)/python
	@$(INSTALL_LOCK) requirements-build.lock
	@$(INSTALL_LOCK) requirements-dev.lock
	@$(INSTALL_ENSUE)
	@touch $(RUNTIME) $@
