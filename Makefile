# The commands for contributors. Each target sets up .venv if necessary and requires only Python 3.11 or newer.

PYTHON ?= python3
WORKERS ?= 2
LOCK_FLAGS ?=

BIN := .venv/bin
RUNTIME := .venv/.runtime-ready
DEVELOPMENT := .venv/.development-ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# --no-compile: Python writes bytecode at the first import, only for imported modules.
# All packages are pinned. hatchling and editables are in the locks. setuptools, which builds PySpark (PyPI only has its
# source), has its own lock, because it must be installed first.
INSTALL_LOCK := $(PIP) install --no-compile --require-hashes --no-build-isolation --requirement
INSTALL_ENSUE := $(PIP) install --no-deps --no-build-isolation --editable .
# Spark requires Java. If Ensue finds no Java 17 or newer, this installs the extra `java`, also from a lock.
ENSURE_JAVA := $(BIN)/python -c 'from ensue.runtimes.spark.java import find_java; find_java()' 2>/dev/null || \
	{ echo "ensue: Java 17 or newer not found, installing Java into .venv" >&2; $(INSTALL_LOCK) requirements-java.lock; }
# The tests open the page of `ensue report` in Chromium. If there is none, this installs Debian's package if possible.
ENSURE_CHROMIUM := command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && \
	echo "ensue: Chromium not found, installing the Debian package" >&2 && apt-get -qq update >/dev/null 2>&1 && \
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null 2>&1; } || \
	echo "ensue: Chromium not found, browser tests will be skipped" >&2
COMPILE := --quiet --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --no-emit-options $(LOCK_FLAGS)
PROJECT := --build-deps-for=editable

.DEFAULT_GOAL := help
.PHONY: help setup demo ready test test-slow test-all check format docs gallery soak bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## stream a week of orders through Spark, print the alerts and write demo.html
	@$(ENSURE_JAVA)
	@$(BIN)/ensue demo

# Two workers: one runs the tests that need Spark, with one Java process, the other one runs the rest.
PYTEST := $(BIN)/pytest -n $(WORKERS)

ready: $(DEVELOPMENT) # install Java and compile the kernels for the tests
	@$(ENSURE_JAVA)
	@$(BIN)/python -c "from ensue.kernels.warm_up import warm_up, warm_up_beliefs; warm_up(); warm_up_beliefs()"

test: ready ## run the tests in a few minutes, with the same random seed each time (WORKERS=0: one process)
	$(PYTEST)

test-slow: ready ## run the slow tests: cluster, Connect, Kafka, Chromium, notebooks, the wheel, benchmarks, all cases on Spark
	@$(ENSURE_CHROMIUM)
	$(PYTEST) -m "slow and not soak"

test-all: test test-slow ## run `test` and `test-slow`

check: $(DEVELOPMENT) ## check style, format, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEVELOPMENT) ## format the code and apply automatic fixes with ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(DEVELOPMENT) ## build the documentation site into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

gallery: $(DEVELOPMENT) ## make the pictures of reports in docs/images again, with Chromium
	@$(ENSURE_CHROMIUM)
	@$(ENSURE_JAVA)
	$(BIN)/python docs/gallery.py

soak: ready ## run the long-running tests; PART= one of cases, stream, kills, setup, pages, inputs, benchmarks
	$(BIN)/pytest -m soak $(if $(PART),--part $(PART))

bench: $(DEVELOPMENT) ## run the benchmarks: start-up, core, steps, many patterns, ties, Spark, constraints, semantic windows, rules, probabilities
	@$(ENSURE_JAVA)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/patterns.py --spark
	$(BIN)/python benchmarks/ties.py
	$(BIN)/python benchmarks/spark.py
	$(BIN)/python benchmarks/constraints.py
	$(BIN)/python benchmarks/semantic_windows.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/probability.py

setup: $(DEVELOPMENT) ## set up .venv and nothing else

lock: ## regenerate the lock files (LOCK_FLAGS=--upgrade for newer versions)
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
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is required; set it with make PYTHON=...")'
	@echo "ensue: setting up .venv (once, about a minute)" >&2
	@$(PYTHON) -m venv .venv

$(RUNTIME): requirements.lock requirements-build.lock pyproject.toml | $(BIN)/python
	@$(INSTALL_LOCK) requirements-build.lock
	@$(INSTALL_LOCK) requirements.lock
	@$(INSTALL_ENSUE)
	@touch $@

# The development lock contains the runtime lock, in the same versions.
$(DEVELOPMENT): requirements-dev.lock requirements.lock requirements-build.lock pyproject.toml | $(BIN)/python
	@$(INSTALL_LOCK) requirements-build.lock
	@$(INSTALL_LOCK) requirements-dev.lock
	@$(INSTALL_ENSUE)
	@touch $(RUNTIME) $@
