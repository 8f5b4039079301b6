# SPDX-License-Identifier: Apache-2.0
"""The history: series in memory and in a file that survives the console."""

from __future__ import annotations

import contextlib
import logging
import stat
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Groups, Requests
from headrace.console.state.history_file import (
    MINUTE_S,
    TEN_MINUTES_S,
    HistoryDamaged,
    HistoryFile,
    Point,
)
from headrace.console.state.table import object_key
from support.brokers.broker_process import until
from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400
BEGAN_S = 1_700_000_400  # A multiple of ten minutes.
QUEUE = ("/", "orders")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[HistoryFile]:
    """An empty file."""
    opened = HistoryFile(tmp_path / "console" / "history.sqlite")
    yield opened
    opened.close()


def point(key: str, **numbers: int) -> Point:
    return Point("queue", key, numbers)


def state_of(console: LocalConsole) -> Any:
    assert console.console is not None
    return console.console.state


def series(console: LocalConsole, kind: str, key: tuple[str, ...], span: str) -> dict[str, Any]:
    """Return what is known of columns of a series, without the steps of which nothing is."""
    names = ("ready", "publish")
    found = state_of(console).history.series(kind, key, names, span)
    times, columns = console.run(found)
    assert set(columns) == set(names)
    assert all(len(column) == len(times) for column in columns.values())
    return {name: [one for one in column if one is not None] for name, column in columns.items()}


# --- The file ------------------------------------------------------------------------------------


def test_minutes_become_ten_minutes(file: HistoryFile) -> None:
    for minute in range(10):
        file.add(BEGAN_S + minute * MINUTE_S, [point("q", publish=minute, ready=minute + 5)])
    assert len(file.points("queue", "q", MINUTE_S, BEGAN_S)) == 10
    ten = file.points("queue", "q", TEN_MINUTES_S, BEGAN_S)
    assert ten == {BEGAN_S: {"publish": 45, "ready": 14}}  # Counters grow, others are as of last.


def test_points_are_kept_for_two_days_and_for_thirty(file: HistoryFile) -> None:
    for minute in range(10):
        file.add(BEGAN_S + minute * MINUTE_S, [point("q", publish=1)])
    file.add(BEGAN_S + 3 * DAY_S, [point("other", publish=1)])
    assert file.points("queue", "q", MINUTE_S, 0) == {}
    assert file.points("queue", "q", TEN_MINUTES_S, 0) == {BEGAN_S: {"publish": 10}}
    file.add(BEGAN_S + 31 * DAY_S, [point("other", publish=1)])
    assert file.points("queue", "q", TEN_MINUTES_S, 0) == {}


def test_the_last_point_before_a_time_is_told(file: HistoryFile) -> None:
    for minute in (0, 1, 5):
        file.add(BEGAN_S + minute * MINUTE_S, [point("q", ready=minute + 1)])
    found = file.points("queue", "q", MINUTE_S, BEGAN_S + 3 * MINUTE_S)
    assert found == {BEGAN_S + 60: {"ready": 2}, BEGAN_S + 300: {"ready": 6}}
    assert file.points("queue", "unknown", MINUTE_S, 0) == {}


def test_the_oldest_points_of_queues_go_when_the_file_is_full(tmp_path: Path) -> None:
    limit = 200_000
    file = HistoryFile(tmp_path / "history.sqlite", limit)
    try:
        for minute in range(120):
            some = [point(f"queue {number}", publish=1) for number in range(50)]
            totals = Point("totals", "totals", {"publish": 50})
            file.add(BEGAN_S + minute * MINUTE_S, [totals, *some])
            assert file.size() <= limit
        assert len(file.points("totals", "totals", MINUTE_S, 0)) == 120
        kept = file.points("queue", "queue 7", MINUTE_S, 0)
        assert 0 < len(kept) < 120
        assert max(kept) == BEGAN_S + 119 * MINUTE_S
    finally:
        file.close()


def test_only_the_user_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "console" / "history.sqlite"
    file = HistoryFile(path)
    try:
        file.add(BEGAN_S, [point("q", publish=1)])
        for one in path.parent.iterdir():
            assert stat.S_IMODE(one.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        file.close()


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(content)
    with pytest.raises(HistoryDamaged):
        HistoryFile(path)


# --- The console ---------------------------------------------------------------------------------


def test_a_series_is_told_at_once(tmp_path: Path) -> None:
    with LocalConsole(tmp_path) as console:
        publish(console, 3)
        for kind, key in (("queue", QUEUE), ("vhost", ("/",)), ("totals", ("totals",))):
            assert console.get("/api/queues/%2F/orders")["messages"] == 3
            assert state_of(console).queues.table.find(*QUEUE) is not None
            found = series(console, kind, key, "1m")
            assert set(found) == {"ready", "publish"}
        assert series(console, "queue", ("/", "no such"), "1m")["ready"] == []
        for span, count in (("1m", 12), ("1h", 60), ("1d", 288), ("30d", 360)):
            times, _ = console.run(
                state_of(console).history.series("queue", QUEUE, ("ready",), span)
            )
            assert len(times) == count
            assert times == sorted(times)


def test_the_history_of_a_group_is_that_of_an_hour(tmp_path: Path) -> None:
    names = ("lag", "committed_records")
    key = ("/", "events", "g")

    def known(console: LocalConsole, span: str) -> dict[str, list[float]]:
        console.get("/api/queues")
        found = state_of(console).history.series("group", key, names, span)
        _, columns = console.run(found)
        return {name: [x for x in column if x is not None] for name, column in columns.items()}

    def prepare(console: LocalConsole) -> None:
        with blocking.connect(console.broker.url) as connection, Requests(connection) as requests:
            channel = connection.channel()
            channel.declare_queue("events", arguments={"x-queue-type": "stream"})
            channel.publish_many([b"m"] * 4, "events")
            Groups(requests, "g").begin({"events": 1})

    with LocalConsole(tmp_path) as console:
        prepare(console)
        assert known(console, "1h")["lag"][-1] == 3
        assert set(known(console, "1m")["lag"]) <= {0, 3}  # Its last step may be before the group.
        for span in ("1d", "30d"):
            assert known(console, span) == {"lag": [], "committed_records": []}
    with contextlib.closing(HistoryFile(tmp_path / "console" / "history.sqlite")) as file:
        assert file.points("group", object_key(key), MINUTE_S, 0) == {}


def test_the_history_survives_the_console(tmp_path: Path) -> None:
    with LocalConsole(tmp_path) as console:
        publish(console, 5)
        console.get("/api/queues")
    with LocalConsole(tmp_path) as console:  # The broker is another, too: its counters are zero.
        console.get("/api/queues")
        for kind, key in (("queue", QUEUE), ("vhost", ("/",)), ("totals", ("totals",))):
            # The first sample may come after the list.
            until(lambda: series(console, kind, key, "1d")["ready"], f"the history of {kind}")  # noqa: B023
            found = series(console, kind, key, "1d")
            assert found["ready"][-1] == 5, kind
            # The two consoles lie in one minute or in two: the step is as long as what is known.
            known = [5 / (MINUTE_S * minutes) for minutes in range(1, 6)]
            assert any(sum(found["publish"]) == pytest.approx(rate) for rate in known), kind


def test_damage_costs_the_history_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "console" / "history.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"broken" * 1000)
    with caplog.at_level(logging.WARNING), LocalConsole(tmp_path) as console:
        assert console.get("/api/queues") == []
        publish(console, 2)
        assert console.get("/api/queues/%2F/orders")["messages"] == 2
    (line,) = [one for one in caplog.messages if "history" in one]
    assert "starts over" in line
    assert path.with_suffix(".damaged").read_bytes().startswith(b"broken")
    with LocalConsole(tmp_path) as console:
        console.get("/api/queues")
        assert series(console, "queue", QUEUE, "1d")["ready"][-1] == 2


def test_a_second_console_has_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "console" / "history.sqlite"
    held = HistoryFile(path)
    try:
        held.add(BEGAN_S, [point("q", publish=1)])
        with caplog.at_level(logging.WARNING), LocalConsole(tmp_path) as console:
            assert console.get("/api/queues") == []
    finally:
        held.close()
    (line,) = [one for one in caplog.messages if "history" in one]
    assert "locked" in line


def publish(console: LocalConsole, count: int) -> None:
    """Publish messages to a durable queue, and have the console see them."""
    console.get("/api/queues")  # The first sample: what is there before is not counted.
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("orders")
        channel.publish_many([Message(b"message", persistent=True)] * count, routing_key="orders")
    assert console.get("/api/queues/%2F/orders")["messages"] >= count
