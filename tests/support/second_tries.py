# SPDX-License-Identifier: Apache-2.0
"""Second tries of tests that fail by chance, whose names end the log of the run.

`make test` gives a failed test up to two more tries (`--reruns 2` of pytest-rerunfailures). This
plugin decides which tests have one try only, gives each try new fixtures, and reports the tests
that passed after another try.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pytest_rerunfailures import ClientStatusDB, get_reruns_count

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

# Folders and files whose tests have one try: where a failure by chance may be a message that was
# lost, doubled or moved, or a right that did not count. Tests without sockets, processes and clocks
# are here as well, since nothing in them is left to chance.
ONCE = (
    # No sockets, processes or clocks.
    "tests/fuzz/",
    "tests/gateway/",
    "tests/model/",
    "tests/protocol/",
    "tests/wire/",
    # What is on disk or in a ledger after kills, power cuts and takeovers.
    "tests/broker/store/",
    "tests/cluster/",
    "tests/store/",
    # Rights.
    "tests/abuse/",
    # Transactions, leases, answers and their order.
    "tests/broker/gateway/test_held_answers.py",
    "tests/broker/gateway/test_staged_requests.py",
    "tests/broker/gateway_0_10/test_answer_order_0_10.py",
    "tests/broker/gateway_0_10/test_dtx_0_10.py",
    "tests/broker/gateway_0_x/test_dtx.py",
    "tests/broker/gateway_0_x/test_transactions.py",
    "tests/broker/model/test_kept_apart.py",
    "tests/broker/model/test_leases.py",
    "tests/broker/model/test_streams.py",
    "tests/cli/test_cli_jobs.py",
    "tests/cli/test_cli_leases.py",
    "tests/cli/test_migrate.py",
    "tests/cli/test_moving.py",
    "tests/client/bulk/",
    "tests/client/channel/test_client_redelivery.py",
    "tests/client/channel/test_duplicates.py",
    "tests/client/connection/test_several_brokers.py",
    "tests/client/extensions/",
    "tests/client/stream/",
    # Each message once in Spark's queries and in pipelines.
    "tests/pipeline/test_checkpoint.py",
    "tests/pipeline/test_compact.py",
    "tests/pipeline/test_dead_letters.py",
    "tests/pipeline/test_iceberg.py",
    "tests/pipeline/test_iceberg_table.py",
    "tests/pipeline/test_ledger.py",
    "tests/pipeline/test_replay.py",
    "tests/pipeline/test_run.py",
    "tests/pipeline/test_sources_change.py",
    "tests/pipeline/test_state.py",
    "tests/spark/archive/",
    "tests/spark/deployment/",
    "tests/spark/driver/",
    "tests/spark/failures/",
    "tests/spark/queue/",
    "tests/spark/runtime/test_takeovers.py",
    "tests/spark/schema/test_offsets.py",
    "tests/spark/task/test_spool.py",
    "tests/spark/test_queue_killed.py",
    "tests/spark/test_queue_read.py",
    "tests/spark/test_spark_takeover.py",
    "tests/spark/test_stream_read.py",
    "tests/spark/test_write.py",
    "tests/spark/write/",
)

# A test with a word that begins like this in its name has one try, wherever it is.
ONE_TRY_WORDS = (
    "commit", "crash", "doubl", "durab", "kill", "lose", "losing", "lost", "once", "order",
    "outliv", "redeliver", "replay", "resum", "surviv", "torn", "transact", "twice",
)  # fmt: skip

FAILED = pytest.StashKey[bool]()

TRACEBACK_LINES = 60  # The last lines of a first try's traceback, which the log has.


def has_one_try(nodeid: str) -> bool:
    """Return True if a test has one try by its folder, its file or a word of its name."""
    name = nodeid.partition("[")[0].rpartition("::")[2]
    words = name.replace("at_once", "").split("_")  # "at_once" does not mean once.
    return nodeid.startswith(ONCE) or any(word.startswith(ONE_TRY_WORDS) for word in words)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("second tries")
    group.addoption(
        "--second-tries", metavar="FILE", help="write the tests that needed a second try to FILE"
    )
    group.addoption(
        "--earlier-tries", metavar="FILE", help="report the tests that an earlier run wrote to FILE"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "once: has one try, since a failure by chance may be a defect"
    )
    # Each test is two small packets from a process of pytest-xdist to the main one. By Nagle's
    # algorithm the second waits for an acknowledgement, which the system delays by 40 ms.
    counts = getattr(config, "failures_db", None)
    if isinstance(counts, ClientStatusDB):
        counts.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_itemcollected(item: pytest.Item) -> None:
    if has_one_try(item.nodeid) or item.get_closest_marker("once"):
        item.add_marker(pytest.mark.flaky(reruns=0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = report.failed or (call.when != "setup" and item.stash[FAILED])
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the fixtures of every scope after a failure, so that the next try has new ones.

    The cause of the failure may be a shared fixture, such as a broken broker.
    """
    if item.stash[FAILED] and 1 <= _try_number(item) <= (get_reruns_count(item) or 0):
        item.session._setupstate.teardown_exact(None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """End the fixtures that remain if the previous try failed in its teardown."""
    if _try_number(item) > 1:
        item.session._setupstate.teardown_exact(None)


def _try_number(item: pytest.Item) -> int:
    """Return the number of the current try, from 1; 0 without second tries."""
    return getattr(item, "execution_count", 0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: TerminalReporter, config: pytest.Config
) -> Generator[None]:
    """Write the tests that needed a second try to the end of the log, before pytest's counts."""
    yield
    lines = second_tries(terminalreporter)
    if lines:
        terminalreporter.section("first tries of tests that passed afterwards")
        for report in first_tries(terminalreporter):
            terminalreporter.write_sep("_", f"{report.when} of {report.nodeid}")
            for line in report.longreprtext.splitlines()[-TRACEBACK_LINES:]:
                terminalreporter.write_line(line)
    earlier = config.getoption("--earlier-tries")
    if earlier and Path(earlier).exists():
        for line in Path(earlier).read_text().splitlines():
            terminalreporter.write_line(f"{line} [{Path(earlier).stem}]")
    for line in lines:
        terminalreporter.write_line(line)
    if file := config.getoption("--second-tries"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("".join([f"{line}\n" for line in lines]))


def second_tries(reporter: TerminalReporter) -> list[str]:
    """Return a line for each test that passed in a later try, with its name and the errors."""
    reasons: dict[str, list[str]] = {}
    for report in _failed_tries(reporter):
        reasons.setdefault(report.nodeid, []).append(_reason(report))
    return [
        f"needed a second try: {nodeid} ({'), then ('.join(errors)})"
        for nodeid, errors in reasons.items()
    ]


def first_tries(reporter: TerminalReporter) -> list[pytest.TestReport]:
    """Return the report of the first try of each test that passed in a later one."""
    reports: dict[str, pytest.TestReport] = {}
    for report in _failed_tries(reporter):
        reports.setdefault(report.nodeid, report)
    return list(reports.values())


def _failed_tries(reporter: TerminalReporter) -> list[pytest.TestReport]:
    """Return a report of each failed try of the tests that passed in a later try."""
    failed = {
        report.nodeid for key in ("failed", "error") for report in reporter.stats.get(key, ())
    }
    tries: dict[tuple[str, int], pytest.TestReport] = {}
    for report in reporter.stats.get("rerun", ()):
        # A try may fail in its test and then in its teardown: the first report has the cause.
        tries.setdefault((report.nodeid, report.rerun), report)
    return [report for (nodeid, _), report in tries.items() if nodeid not in failed]


def _reason(report: pytest.TestReport) -> str:
    """Return the error of a failed try: its type and the first line of its text."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    line = next(iter(text.strip().splitlines()), "")
    if line.startswith("assert "):  # pytest leaves the type out here.
        line = f"AssertionError: {line}"
    return line if report.when == "call" else f"{report.when}: {line}"
