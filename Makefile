# `make demo` and `make test` are all a new user needs; `make help` lists the rest.
# Each target sets up what it needs and nothing is installed or built twice: .stamps/ remembers what was done, and the
# scripts in setup/ do it.

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.SUFFIXES:

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SECONDS_PER_TARGET ?= 30
# Files of tests that run side by side: one more than a small machine has processors, as some wait for clocks and networks.
PYTEST_WORKERS ?= 3
PYTEST_ARGS ?=
BENCH_ARGS ?=
ACCURACY_ARGS ?=
CAPTURE ?=
EVENTS ?=

export JOBS
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# The tools must see the environment in .venv and nothing else, and keep what they compile: without, each process of
# pytest rewrites every assertion.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONDONTWRITEBYTECODE

FOLDERS := capture reconstruct hostmon analyze validate report store cli
NOT_BUILT := -name '__pycache__' -o -name '*.so' -o -name '*.pyc'
SOURCES := $(shell find $(FOLDERS) \( $(NOT_BUILT) \) -prune -o -type f -print) \
           meson.build meson.options pyproject.toml README.md LICENSE
# Rewritten only when a file came or went, so that removing a source rebuilds too.
SOURCE_LIST := $(shell mkdir -p .stamps && echo '$(sort $(SOURCES))' | cmp -s - .stamps/sources || \
                       echo '$(sort $(SOURCES))' > .stamps/sources)

.PHONY: demo test lint format sanitize fuzz bench bench-capture accuracy install clean distclean help \
        packages-demo packages-test packages-fuzz packages-bench cpp-tests source-tree FORCE

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

demo: .stamps/installed ## set up, run the main job on a real capture, say where the HTML report lies
	@setup/demo $(CAPTURE) $(EVENTS)

test: packages-test cpp-tests .stamps/installed .stamps/python-test ## set up, run the C++ tests and all Python tests (PYTEST_ARGS=..., PYTEST_WORKERS=3)
	@pytest -n $(PYTEST_WORKERS) --dist loadfile $(PYTEST_ARGS)

lint: .stamps/python-build .stamps/python-lint source-tree ## ruff, mypy, clang-format and the import direction
	@setup/lint

format: .stamps/python-lint ## rewrite every source with ruff and clang-format
	@setup/format

sanitize: packages-test .stamps/python-build .stamps/python-test ## C++ tests, recordings and Python tests of what is compiled, under sanitizers
	@setup/cpp-tests build-sanitize -Dbuildtype=debug -Doptimization=1 -Db_lto=false -Db_sanitize=address,undefined -Db_lundef=false
	@setup/sanitized-python build-sanitize

fuzz: packages-fuzz .stamps/python-build ## libFuzzer on every dissector (SECONDS_PER_TARGET=30)
	@setup/fuzz $(SECONDS_PER_TARGET)

bench: packages-bench .stamps/installed .stamps/python-test ## benchmarks, with machine, input and spread
	@setup/bench

bench-capture: packages-bench .stamps/installed ## the capture engine next to other programs (BENCH_ARGS=--full)
	@setup/bench capture $(BENCH_ARGS)

accuracy: .stamps/installed .stamps/python-test ## how right the matcher is where truth is known (ACCURACY_ARGS="--runs DIR --spans-dir DIR")
	@setup/bench accuracy $(ACCURACY_ARGS)

install: .stamps/installed ## set up, build and install into .venv only

cpp-tests: .stamps/python-build
	@setup/cpp-tests build-tests -Dbuildtype=debugoptimized -Db_lto=false

packages-demo:
	@setup/system-packages demo

packages-test:
	@setup/system-packages demo test

packages-fuzz:
	@setup/system-packages demo fuzz

packages-bench:
	@setup/system-packages demo bench

# Looked at every time; the stamp is new only when the environment is, and then everything in it is installed again.
.stamps/venv: FORCE | packages-demo
	@setup/venv

.stamps/python-build: .stamps/venv pyproject.toml setup/requirements.py setup/python-packages
	@setup/python-packages build runtime report
	@touch $@

.stamps/python-test: .stamps/venv pyproject.toml setup/requirements.py setup/python-packages
	@setup/python-packages test
	@touch $@

# mypy follows matplotlib's own types; what ships none is named in pyproject.toml.
.stamps/python-lint: .stamps/venv pyproject.toml setup/requirements.py setup/python-packages
	@setup/python-packages lint figures
	@touch $@

# What is built depends on what is there: with DPDK's files come, everything is configured again.
.stamps/features: FORCE | packages-demo
	@pkg-config --modversion libdpdk >$@.new 2>/dev/null || echo none >$@.new
	@cmp -s $@ $@.new || { rm -rf build build-tests build-sanitize; cp $@.new $@; }

.stamps/installed: $(SOURCES) .stamps/sources .stamps/features setup/install .stamps/python-build
	@setup/install
	@touch $@

# mypy and ruff see the folders under their import names here.
source-tree:
	@setup/source-tree .stamps/tree

FORCE:

clean: ## remove builds and outputs, keep .venv
	rm -rf build build-* .stamps demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean ## remove .venv too
	rm -rf .venv
