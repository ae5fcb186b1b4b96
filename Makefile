# All routine tasks. Each target sets up what it needs in .venv, and repeats a step only if its inputs changed.
#
#   PYTHON=...    the interpreter to build .venv with (default: the first suitable one found, 3.11 preferred)
#   POSTGRES=no   do not try to install a PostgreSQL server for the tests
#   CHROMIUM=no   do not try to install a browser for the tests
#   TESTS=...     arguments for pytest, instead of all tests
#   ARGS=...      arguments for make reproduce or make bench: ARGS=list, ARGS="paper1 --jobs 2", ARGS="alignment --json"
#   FEDCLUST_DATA=...   a folder of benchmark data; without it, tests that need the data are skipped

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
TESTS ?=
ARGS ?=
POSTGRES ?= auto
CHROMIUM ?= auto
FEDCLUST_DATA ?= $(abspath $(wildcard ../shared/data))
export FEDCLUST_DATA
INPUTS := pyproject.toml setup.py constraints.txt $(wildcard src/fedclust/kernels/*.c src/fedclust/kernels/*.h)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test check reproduce bench bench-engines attacks docs test-slow test-long test-engines test-processors faults constraints clean postgres chromium cross-compiler

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.base ## cluster the embedded demo study and write its report
	@$(BIN)/fedclust demo

test: check postgres chromium ## run make check, then all tests but the slow ones
	@echo "tests"
	@$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadscope -rs $(TESTS)

check: $(VENV)/.dev ## check format, lint, types and import contracts
	@echo "format"
	@$(BIN)/ruff format --quiet --check --diff .
	@echo "lint"
	@$(BIN)/ruff check --quiet .
	@echo "types"
	@$(BIN)/mypy --no-error-summary
	@echo "import contracts"
	@$(BIN)/lint-imports > $(VENV)/contracts.log 2>&1 || { cat $(VENV)/contracts.log; exit 1; }

reproduce: $(VENV)/.dev ## reproduce the papers' tables and figures; by default the quick ones, in half an hour
	@$(BIN)/python -m papers.reproduction $(or $(ARGS),all --quick)

bench: $(VENV)/.bench ## measure speed ratios against peers in one run; ARGS names another benchmark
	@$(BIN)/python -m benchmarks $(or $(ARGS),sweep)

bench-engines: .venv-engines/.done .venv-flower/.done ## measure the time per step on every engine in one run, and compare the bits
	@PYTHONPATH=tests .venv-engines/bin/python -m benchmarks engine_rounds
	@.venv-flower/bin/python -m pytest -m engines -k superlink tests/engines/test_flower.py

attacks: $(VENV)/.base ## count the rows that known attacks recover from 1,000 plain, secure and blind runs; 10 to 20 minutes
	@mkdir -p build
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.attack_suite --out build/attacks
	@echo "written to build/attacks.json and build/attacks.md"

docs: $(VENV)/.dev ## update the tables from the code, then build the documentation in site-docs/
	@$(BIN)/python docs/tables.py
	@$(BIN)/mkdocs build --quiet --strict
	@echo "documentation in site-docs/index.html"

test-slow: $(VENV)/.bench $(VENV)/.dev postgres ## run tests that take minutes or read benchmark data
	@$(call marked,slow)

test-long: $(VENV)/.dev ## run exhaustive repetitions: 1,000 partitions instead of 60
	@$(call marked,long -n $(JOBS) --maxprocesses 4)

test-engines: .venv-engines/.done .venv-flower/.done ## run federations in separate processes on every engine
	@.venv-engines/bin/python -m pytest -m engines --durations 5 $(or $(TESTS),tests/engines tests/conformance)
	@.venv-flower/bin/python -m pytest -m "engines or not engines" -k flower --durations 5 tests/engines tests/conformance

test-processors: $(VENV)/.dev cross-compiler ## run every study as other processors (ARM64 too), BLAS and compilers would, and compare the bits
	@PYTHONPATH=tests $(BIN)/python -m processors

faults: .venv-engines/.done .venv-flower/.done ## kill, stop, cut off and mislead real processes on every engine, and print each outcome
	@PYTHONPATH=tests .venv-engines/bin/python -m fault_rig.faults
	@.venv-flower/bin/python -m pytest -q -m engines -k killed tests/engines/test_flower.py

constraints: ## resolve all dependencies again and pin them in constraints.txt
	@rm -rf build/constraints
	@$(find_python); echo "resolving with $$($$found --version)"; $$found -m venv build/constraints
	@$(call quietly,build/constraints/bin/python -m pip install --upgrade setuptools '.[dev$(comma)bench]',build/constraints/pip.log)
	@sed '/^[^#]/d' constraints.txt > build/constraints/new.txt
	@build/constraints/bin/python -m pip freeze --all --exclude pip --exclude fedclust >> build/constraints/new.txt
	@sed -n '/^torch==/p' constraints.txt >> build/constraints/new.txt
	@mv build/constraints/new.txt constraints.txt
	@rm -rf build/constraints
	@echo "constraints.txt updated; run make test before you commit it"

clean: ## remove everything that these targets made, except runs/
	rm -rf $(VENV) .venv-engines .venv-flower build dist site-docs src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f src/fedclust/kernels/*.so
	find src tests papers benchmarks tools docs -name __pycache__ -type d -exec rm -rf {} +

# ---- definitions that the targets use

comma := ,

# $(call quietly,COMMAND,LOG): run a command, and show its output only if it failed.
quietly = $(1) > $(2) 2>&1 || { cat $(2); exit 1; }

# An interpreter of at least 3.11 that can make environments, if possible with C headers.
find_python = found=; \
	for want in headers any; do \
	  for one in "$(PYTHON)" python3.11 python3 python3.12 python3.13 python3.14 python; do \
	    [ -n "$$one" ] && [ -z "$$found" ] && "$$one" -c "import sys, os, sysconfig, venv, ensurepip; \
	      header = os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')); \
	      sys.exit(sys.version_info < (3, 11) or ('$$want' == 'headers' and not header and '$$one' != '$(PYTHON)'))" \
	      > /dev/null 2>&1 && found="$$one"; \
	  done; \
	done; \
	[ -n "$$found" ] || { echo "needs Python 3.11 or newer with venv (Debian: apt install python3-venv python3-dev);" \
	  "give its path with PYTHON=..." >&2; exit 2; }

# $(call install,EXTRAS): install the package in place, so that edits of .py files need no second install.
install = $(call quietly,$(BIN)/python -m pip install -c constraints.txt --upgrade setuptools,$(VENV)/pip.log) && \
	{ $(call quietly,$(BIN)/python -m pip install -c constraints.txt --no-build-isolation -e '.$(1)',$(VENV)/pip.log); } && \
	$(BIN)/python -W ignore -c "from fedclust.kernels._backend import backend; \
	  backend() == 'c' or print('kernels: no C compiler or no Python headers; using NumPy, with the same results but slower')"

# $(call apart,FOLDER,CONSTRAINTS,EXTRAS): a separate environment with the package in place and what tests import.
apart = [ -x $(1)/bin/pip ] || { $(find_python); $$found -m venv $(1); }; \
	{ $(call quietly,$(1)/bin/python -m pip install -c $(2) setuptools pytest hypothesis,$(1)/pip.log); } && \
	{ $(call quietly,$(1)/bin/python -m pip install -c $(2) --no-build-isolation -e '.[$(3)]',$(1)/pip.log); } && touch $(1)/.done

# If no test has a marker, pytest exits with 5.
marked = $(BIN)/python -m pytest -m $(1) --durations 5 $(TESTS) || { code=$$?; \
	[ $$code = 5 ] && echo "no test has the marker '$(1)' in this version" || exit $$code; }

$(BIN)/pip:
	@$(find_python); echo "environment: .venv with $$($$found --version)"; \
	$$found -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.base: $(BIN)/pip $(INPUTS)
	@echo "install: fedclust"
	@$(call install,)
	@touch $@

$(VENV)/.dev: $(BIN)/pip $(INPUTS)
	@echo "install: fedclust and the packages for its tests"
	@$(call install,[dev])
	@touch $(VENV)/.base $@

# FLARE is large, and Flower's pins conflict with ours, so each is tested in a separate environment.
.venv-engines/.done: $(INPUTS)
	@echo "install: fedclust with NVIDIA FLARE and Dask, in .venv-engines"
	@$(call apart,.venv-engines,constraints.txt,nvflare$(comma)dask)

.venv-flower/.done: $(INPUTS) constraints-flower.txt
	@echo "install: fedclust with Flower, in .venv-flower"
	@$(call apart,.venv-flower,constraints-flower.txt,flower)

$(VENV)/.bench: $(BIN)/pip $(INPUTS)
	@echo "install: fedclust and the packages it is compared with"
	@$(call install,[bench])
	@touch $(VENV)/.base $@

# $(call apt,PACKAGE): install a Debian package if allowed. It never fails; tests without their package skip and say so.
apt = export DEBIAN_FRONTEND=noninteractive; \
	get="timeout 300 apt-get -y -qq -o DPkg::Lock::Timeout=60 -o Acquire::Retries=1"; \
	{ $$get install --no-install-recommends $(1) \
	  || { $$get update && $$get install --no-install-recommends $(1); }; } > $(VENV)/apt.log 2>&1 \
	  || echo "  the package could not be installed; its tests will be skipped"

may_install = [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null

# The PostgreSQL tests start their own server.
postgres:
	@if [ "$(POSTGRES)" = auto ] && $(may_install) \
	    && ! command -v initdb > /dev/null && ! ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1; then \
	  echo "install: PostgreSQL server, for its tests (POSTGRES=no skips it)"; \
	  $(call apt,postgresql); \
	fi

# Studies run again with kernels that clang compiled, and in an emulator of an ARM64 processor.
cross-compiler:
	@if $(may_install) && ! { command -v clang && command -v qemu-aarch64 && command -v aarch64-linux-gnu-gcc; } > /dev/null; then \
	  echo "install: clang, a cross-compiler and an emulator for ARM64"; \
	  $(call apt,clang qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross); \
	fi

# The tests open reports in a browser; Debian's is a download of about 100 MB and takes 400 MB on disk.
chromium:
	@if [ "$(CHROMIUM)" = auto ] && $(may_install) && ! command -v chromium > /dev/null; then \
	  echo "install: Chromium, to open reports in the tests (CHROMIUM=no skips it)"; \
	  $(call apt,chromium); \
	fi
