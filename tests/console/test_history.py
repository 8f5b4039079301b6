# SPDX-License-Identifier: Apache-2.0
"""The history: series in memory and in a file that survives the console."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
from array import array
from typing import TYPE_CHECKING, Any, Self

import pytest

from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Groups, Requests
from headrace.console.state import history
from headrace.console.state.deltas import Delta, run_steps
from headrace.console.state.history_file import (
    MINUTE_S,
    TEN_MINUTES_S,
    HistoryDamaged,
    HistoryFile,
    Point,
)
from headrace.console.state.snapshot import make_tables
from headrace.console.state.table import Part, object_key
from headrace.measures import VHOST
from support.brokers.broker_process import until
from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400
BEGAN_S = 1_700_000_400  # A multiple of ten minutes.
HOUR_BEGAN_S = 1_700_002_800
QUEUE = ("/", "orders")
TOTALS_POINT = Point("totals", "totals", {"publish": 50})


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


def test_a_file_of_many_virtual_hosts_stays_within_its_maximum(tmp_path: Path) -> None:
    limit = 200_000
    with contextlib.closing(HistoryFile(tmp_path / "history.sqlite", limit)) as file:
        for minute in range(120):
            some = [Point("vhost", f"vhost {number}", {"published": 1}) for number in range(50)]
            file.add(BEGAN_S + minute * MINUTE_S, [TOTALS_POINT, *some])
            assert file.size() <= limit
        assert len(file.points("totals", "totals", MINUTE_S, 0)) == 120
        kept = file.points("vhost", "vhost 7", MINUTE_S, 0)
        assert 0 < len(kept) < 120
        assert max(kept) == BEGAN_S + 119 * MINUTE_S


def test_points_of_queues_and_of_virtual_hosts_do_not_displace_each_other(tmp_path: Path) -> None:
    limit = 400_000
    with contextlib.closing(HistoryFile(tmp_path / "history.sqlite", limit)) as file:
        for minute in range(120):
            some = [
                Point(kind, f"{kind} {number}", {"publish": 1})
                for kind in ("vhost", "queue")
                for number in range(50)
            ]
            file.add(BEGAN_S + minute * MINUTE_S, some)
        counts = [len(file.points(kind, f"{kind} 7", MINUTE_S, 0)) for kind in ("vhost", "queue")]
        assert all(20 < count < 120 for count in counts)
        assert abs(counts[0] - counts[1]) <= 10


def test_a_full_file_keeps_the_points_of_few_virtual_hosts(tmp_path: Path) -> None:
    limit = 200_000
    with contextlib.closing(HistoryFile(tmp_path / "history.sqlite", limit)) as file:
        for minute in range(120):
            some = [point(f"queue {number}", publish=1) for number in range(50)]
            file.add(BEGAN_S + minute * MINUTE_S, [Point("vhost", "/", {"published": 1}), *some])
        assert len(file.points("vhost", "/", MINUTE_S, 0)) == 120
        assert file.points("queue", "queue 7", MINUTE_S, 0)


def test_a_full_file_has_no_series_without_points(tmp_path: Path) -> None:
    limit = 200_000
    with contextlib.closing(HistoryFile(tmp_path / "history.sqlite", limit)) as file:
        for minute in range(1, 9):  # Within an hour, as series are dropped at its beginning anyway.
            some = [point(f"{minute} {number} {'n' * 200}", publish=1) for number in range(200)]
            file.add(HOUR_BEGAN_S + minute * MINUTE_S, some)
            assert file.size() <= limit
        newest = file.points("queue", f"8 7 {'n' * 200}", MINUTE_S, 0)
        assert newest == {HOUR_BEGAN_S + 8 * MINUTE_S: {"publish": 1}}


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


# --- Points of a minute --------------------------------------------------------------------------


class Minutes:
    """The virtual hosts of a broker, whose numbers a test sets minute by minute."""

    def __init__(self, path: Path, count: int) -> None:
        """``count`` is the number of virtual hosts, which are named by their ids."""
        self.history = history.History(path)
        self.table = make_tables()[VHOST]
        self.minute = 0
        self._loop = asyncio.Runner()
        numbers = range(1, count + 1)
        columns = {"ready": array("q", numbers), "published": array("q", bytes(8 * count))}
        new = [(number, f"vhost {number}") for number in numbers]
        self._sample(Part(array("q", numbers), columns, ("name",), new, ()))

    def _sample(self, part: Part) -> Delta | None:
        now_ms = 1000 * (HOUR_BEGAN_S + self.minute * MINUTE_S)
        self.table.add(part, now_ms)
        return run_steps(self.table.complete(now_ms + 1000))

    def write(self, **columns: dict[int, int]) -> None:
        """Write a minute with these new values of columns, by the id of a virtual host."""
        numbers = array("q", sorted({number for column in columns.values() for number in column}))
        values = {
            name: array(
                "q",
                [column.get(number, self.table.number(number - 1, name)) for number in numbers],
            )
            for name, column in columns.items()
        }
        delta = self._sample(Part(numbers, values, (), (), ()))
        assert delta is not None
        at_s = HOUR_BEGAN_S + self.minute * MINUTE_S
        self._loop.run(self.history._write(at_s, {VHOST: [delta]}))
        self.minute += 1

    def __enter__(self) -> Self:
        self._loop.run(self.history.start())
        self.history.add({VHOST: self.table}, {}, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self.history.stop())
        self._loop.close()


def points_of(path: Path, number: int) -> dict[int, dict[str, int]]:
    """Return the points of a virtual host, by the minute since the hour began."""
    with contextlib.closing(HistoryFile(path)) as file:
        found = file.points("vhost", object_key((f"vhost {number}",)), MINUTE_S, 0)
    return {(at_s - HOUR_BEGAN_S) // MINUTE_S: numbers for at_s, numbers in found.items()}


def test_a_virtual_host_has_a_point_at_a_change_and_once_an_hour(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with Minutes(path, 2) as minutes:
        for minute in range(70):
            minutes.write(published={1: minute + 1})
    assert points_of(path, 1) == {minute: {"ready": 1, "published": 1} for minute in range(70)}
    assert points_of(path, 2) == {0: {"ready": 2}, 60: {"ready": 2}}


def test_a_minute_has_points_of_the_virtual_hosts_with_the_most_changes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOVED_MAX", 3)
    path = tmp_path / "history.sqlite"
    with Minutes(path, 5) as minutes:
        minutes.write(published={number: number for number in range(1, 6)})
        minutes.write(published={1: 9, 2: 9})
    ready = {number: {"ready": number} for number in range(1, 6)}
    assert points_of(path, 1) == {1: {**ready[1], "published": 8}}  # Never 0 after a change.
    assert points_of(path, 2) == {1: {**ready[2], "published": 7}}
    for number in (3, 4, 5):
        assert points_of(path, number) == {0: {**ready[number], "published": number}}


def test_virtual_hosts_without_a_change_fill_the_first_minute_up_to_its_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOVED_MAX", 3)
    path = tmp_path / "history.sqlite"
    with Minutes(path, 5) as minutes:
        minutes.write(published={5: 1})
    assert points_of(path, 5) == {0: {"ready": 5, "published": 1}}
    assert sum(len(points_of(path, number)) for number in range(1, 6)) == 3


def test_objects_of_which_gauges_alone_changed_have_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOVED_MAX", 3)
    path = tmp_path / "history.sqlite"
    with Minutes(path, 5) as minutes:
        minutes.write(ready=dict.fromkeys(range(1, 6), 10))
    assert [len(points_of(path, number)) for number in range(1, 6)] == [1, 1, 1, 0, 0]


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
