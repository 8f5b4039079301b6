# SPDX-License-Identifier: Apache-2.0
"""All tests may use the fixtures that the package ships, and know which build they test."""

import gc
import json
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import headrace.model.queue.queue
from headrace.spark.runtime import quick_start
from headrace.testing import LocalBroker
from support import left_open
from support.brokers.in_memory_broker import rig

__all__ = ["rig"]

pytest_plugins = (
    "headrace.testing.plugin",
    "pytester",
    "support.file_order",
    "support.second_tries",
    "support.time_limits",
)

# How long an example takes is the machine's affair, and says nothing of what is tested. Examples
# are the same in each run, as those from our own seeds are. HEADRACE_SEEDS, which tries more of
# these, has others in each run.
settings.register_profile(
    "headrace",
    deadline=None,
    derandomize="HEADRACE_SEEDS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headrace")

# A Java machine of a test lives for seconds: to optimize for longer costs it more than that saves.
# Half of what a short session of Spark takes is its second compiler's.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# `make test` prepares the cache once; without it each session of Spark takes twice as long.
os.environ.setdefault(quick_start.CACHE, str(Path(__file__).parent.parent / "build" / "spark"))
quick_start.use()

# A shell starts what runs in its background with this signal ignored, and so would run what the
# tests start: a program that they end by Ctrl-C would go on.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What a terminal can do is said by the test that has one.
os.environ["TERM"] = "xterm-256color"
for name in ("CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR"):
    os.environ.pop(name, None)

# Brokers of the tests read it as `headrace serve` does: the same tests, through relays.
if relays := os.environ.get("HEADRACE_RELAYS"):
    LocalBroker.defaults = {"relays": int(relays)}

# tools/peers.py writes it.
ABSENT = Path(__file__).parent.parent / "build" / "interop" / "absent.json"
COMPILED = not headrace.model.queue.queue.__file__.endswith(".py")


def pytest_report_header() -> str:
    place = Path(headrace.__file__).parent
    relayed = f", with {relays} relay for each broker" if relays else ""
    return f"headrace: {'compiled' if COMPILED else 'uncompiled'}, {place}{relayed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the clients of others that this distribution lacks: their tests were skipped."""
    if ABSENT.exists():
        for reason in json.loads(ABSENT.read_text()).values():
            terminalreporter.write_line(f"not tried here: {reason}")


def pytest_configure() -> None:
    """Refuse to test another build than the one asked for by HEADRACE_BUILD."""
    wanted = os.environ.get("HEADRACE_BUILD")
    if wanted and (wanted == "compiled") is not COMPILED:
        raise pytest.UsageError(f"HEADRACE_BUILD={wanted}, but {pytest_report_header()}")


def pytest_sessionstart() -> None:
    left_open.install()  # Above the hook of pytest, which reports.


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: the garbage collector does not go through it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that proves a rule may not be skipped, unless another broker is under test."""
    report = yield
    if report.skipped and "HEADRACE_INTEROP_URL" not in os.environ:
        rules = [str(rule) for mark in item.iter_markers("rule") for rule in mark.args]
        if rules:
            report.outcome = "failed"
            report.longrepr = f"skipped, though it proves {', '.join(rules)}: {report.longrepr}"
    return report
