# SPDX-License-Identifier: Apache-2.0
# make venv | build | test | interop | lint | bench | demo | fuzz | wheel | deb | conformance.
# All but `clean`, `wheel` and `deb` make .venv first.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: broken venv build sanitized peers ready collected interop test test-pure test-compiled lint bench \
	bench-spark demo fuzz quick-spark soak soak-spark soak-cluster wheel deb docs conformance clean

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# The demo needs half of the packages that tests and lint need. Where all are, they do for it, too.
DEMO_STAMP := $(VENV)/.stamp-demo
COMPILED := build/compiled
SANITIZERS ?= address,undefined
FUZZ_SECONDS ?= 120
TESTS ?= tests
# Two processes more than two cores, since tests wait for disks and children. A file's tests stay together,
# for they share brokers; tests/support/file_order.py orders the files.
JOBS ?= 4
PYTEST := bash tools/scratch.sh $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# What is needed of the system: `make test` asks for all of it at once, in one call of apt.
PURPOSE := $(if $(filter test interop,$(MAKECMDGOALS)),test,demo)
# An environment whose Python was removed or replaced is made again.
BROKEN := $(shell test ! -e $(VENV) || $(BIN)/python -c "" 2>/dev/null || echo broken)
# What fails by chance is tried again and named at the end: tests/support/second_tries.py.
TRIES := build/second-tries
AGAIN := --durations=30 --reruns 2 --second-tries $(TRIES)
EARLIER :=
# The modules of the tests, with assertions rewritten: a process that finds them compiled collects in less
# than half the time. Several that do not would all compile them.
unexport PYTHONDONTWRITEBYTECODE
COLLECTED := $(wildcard tests/testing/__pycache__/test_ports.*-pytest-*.pyc)
# A step with a title, which is never silent for long.
ALOUD := . tools/step.sh; aloud
# These run in both builds; what they pass through runs with them.
BOTH := $(wildcard tests/wire tests/protocol tests/model tests/gateway tests/server tests/bench) \
	$(wildcard $(addprefix tests/spark/,decode driver options queue runtime schema task write)) \
	$(wildcard tests/broker/gateway_0_x/test_basic_class.py \
	tests/broker/gateway_0_10/test_0_10_message.py)

venv: $(STAMP)

$(STAMP): pyproject.toml setup.py tools/venv.sh $(BROKEN)
	@PYTHON="$(PYTHON)" bash tools/system.sh $(PURPOSE)
	@PYTHON="$(PYTHON)" bash tools/venv.sh $(VENV)
	@touch $@

$(DEMO_STAMP): pyproject.toml setup.py tools/venv.sh $(BROKEN)
	@PYTHON="$(PYTHON)" bash tools/system.sh demo
	@PYTHON="$(PYTHON)" bash tools/venv.sh $(VENV) spark,lake,console,demo
	@touch $@

broken:

build: $(STAMP)
	@$(BIN)/python build_ext.py

sanitized: $(STAMP)
	@HEADRACE_SANITIZE=$(SANITIZERS) $(BIN)/python build_ext.py

test: ready test-pure test-compiled
# Its log ends with the tests that needed a second try in either run.
test: EARLIER := --earlier-tries $(TRIES)/uncompiled.txt

# All that `test` needs.
ready: peers build sanitized quick-spark collected

# What cannot be collected is reported by the run.
collected: $(STAMP)
ifeq ($(COLLECTED),)
	@. tools/step.sh; step "modules of the tests (half a minute)" \
		env PYTHONPATH=src $(BIN)/python -m pytest --collect-only -qq $(TESTS) || true
endif

# What tests drive: other people's clients and servers.
peers: $(STAMP)
	@PYTHON="$(PYTHON)" bash tools/system.sh test
	@$(BIN)/python tools/peers.py

# Our client and the data source against another broker: Debian's RabbitMQ.
interop: build
	@bash tools/rabbitmq.sh
	@echo "== against RabbitMQ: tests/foreign"
	@HEADRACE_FOREIGN=1 HEADRACE_BUILD=compiled PYTHONPATH=$(COMPILED) \
		$(BIN)/python -m pytest tests/foreign

test-pure: $(STAMP) collected
	@echo "== uncompiled: $(BOTH)"
	@HEADRACE_BUILD=pure PYTHONPATH=src $(PYTEST) $(AGAIN)/uncompiled.txt -m "not slow" $(BOTH)

# Spark's classes, loaded once for all sessions of the tests; the options are those of tests/conftest.py.
# Where that does not work, sessions start as slowly as ever.
quick-spark: build
	@-$(ALOUD) "classes of Spark (up to two minutes)" \
		env JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" HEADRACE_SPARK_CACHE=build/spark \
		PYTHONPATH=$(COMPILED) $(BIN)/python -m headrace.cli pipeline prepare

# Last, so that the last line of `make test` is pytest's summary of the whole suite.
test-compiled: build sanitized quick-spark collected
	@echo "== compiled: $(TESTS)"
	@HEADRACE_BUILD=compiled PYTHONPATH=$(COMPILED) $(PYTEST) $(AGAIN)/compiled.txt $(EARLIER) $(TESTS)

lint: $(STAMP)
	@$(ALOUD) "ruff check" $(BIN)/ruff check .
	@$(ALOUD) "ruff format" $(BIN)/ruff format --check .
	@$(ALOUD) "mypy (a minute, some seconds with its cache)" $(BIN)/mypy
	@$(ALOUD) "import-linter" env PYTHONPATH=src $(BIN)/lint-imports --no-cache --no-logo
	@$(ALOUD) "codecs" env PYTHONPATH=src $(BIN)/python tools/gen_codecs.py --check
	@$(ALOUD) "counters" env PYTHONPATH=src $(BIN)/python tools/gen_counters.py --check
	@$(ALOUD) "blocking client" env PYTHONPATH=src $(BIN)/python tools/gen_blocking.py --check
	@$(ALOUD) "pages" env PYTHONPATH=src $(BIN)/python tools/gen_pages.py --check
	@$(ALOUD) "table of compatibility" $(BIN)/python tools/compatibility.py --check
	@$(ALOUD) "drawings" env PYTHONPATH=src $(BIN)/python tools/draw.py --check
	@$(ALOUD) "site" $(BIN)/python tools/site.py
	@$(ALOUD) "conformance" env PYTHONPATH=src $(BIN)/python tools/conformance.py --check

bench: build
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m headrace.cli bench --serve $(BENCH)

bench-spark: build
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m headrace.cli bench-spark $(BENCH)

soak: build
	@PYTHONPATH=$(COMPILED) $(BIN)/python tools/longrun.py $(SOAK)

soak-spark: build
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m headrace.cli soak-spark $(SOAK)

soak-cluster: build
	@PYTHONPATH=$(COMPILED) $(BIN)/python tools/soak_cluster.py $(SOAK)

demo: $(or $(wildcard $(STAMP)),$(DEMO_STAMP))
	@$(BIN)/python build_ext.py
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m demo $(DEMO)

fuzz: $(STAMP)
	@$(BIN)/python tests/fuzz/run.py --sanitize --seconds $(FUZZ_SECONDS)

docs: $(STAMP)
	@PYTHONPATH=src $(BIN)/python tools/gen_pages.py
	@PYTHONPATH=src $(BIN)/python tools/draw.py
	@$(BIN)/python tools/site.py

conformance: $(STAMP)
	@PYTHONPATH=src $(BIN)/python tools/conformance.py

# Wheels for every Python here, tried in empty environments, into dist.
wheel:
	@$(or $(PYTHON),python3) tools/wheels.py

# A package for the Debian or Ubuntu that this machine runs.
deb:
	@bash tools/deb.sh dist $(WHEEL)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
