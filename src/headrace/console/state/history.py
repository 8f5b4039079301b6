# SPDX-License-Identifier: Apache-2.0
"""The history of numbers: an hour in memory, 30 days in a file.

In memory there is a value every five seconds for ten minutes, then one a minute (:mod:`.deltas`).
The file (:mod:`.history_file`) has the broker's totals and process, and the virtual hosts, queues
and users with changes. Without the file the history is one hour.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.console.state.deltas import MS, SAMPLE_S, Delta, join_deltas, run_steps
from headrace.console.state.history_file import (
    MINUTE_S,
    TEN_MINUTES_S,
    HistoryDamaged,
    HistoryFile,
    Numbers,
    Point,
    join_points,
)
from headrace.console.state.table import LATE_MS, object_key
from headrace.measures import GAUGES, NODE, QUEUE, TOTALS, USER, VHOST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from headrace.console.state.snapshot import Tables
    from headrace.console.state.table import Table

log = logging.getLogger(__name__)

KEPT = (TOTALS, NODE, VHOST, QUEUE, USER)  # The kinds with a history.
MOVED = (VHOST, QUEUE, USER)  # Kinds of which only objects with changes have a point.
MOVED_MAX = 1000  # Points of a kind in a minute: of the objects with the most changes.
HOUR_S = 3600  # The interval at which virtual hosts without a change have a point.

Column = list[float | None]  # None: unknown.
Result = TypeVar("Result")


class Span(NamedTuple):
    """A period until now."""

    seconds: int
    step_s: int  # Between two values of an answer.
    kept_s: int  # Between two points of the file.


SPANS: Mapping[str, Span] = {
    "1m": Span(60, SAMPLE_S, SAMPLE_S),
    "1h": Span(3600, MINUTE_S, MINUTE_S),
    "1d": Span(86_400, 5 * MINUTE_S, MINUTE_S),
    "30d": Span(30 * 86_400, 12 * TEN_MINUTES_S, TEN_MINUTES_S),
}


class History:
    """Collects samples, and returns series of them."""

    def __init__(self, path: Path | None) -> None:
        """``path`` is the path of the file; None for no file."""
        self._path = path
        self._thread = ThreadPoolExecutor(1, "history")
        self._file: HistoryFile | None = None
        self._is_kept = path is not None  # False without a file, or if the file cannot be used.
        self._tables: Tables = {}
        self._deltas: dict[str, list[Delta]] = {}  # The deltas of this minute, by kind.
        self._minute = 0
        self._writing: asyncio.Task[None] | None = None
        self._is_late = False  # A minute is lost, because the one before it is still being written.
        # The table and hour in which all virtual hosts were written last.
        self._vhosts_written: tuple[Table, int] | None = None

    async def start(self) -> None:
        """Open the file; a failure is logged."""
        if self._path is not None:
            await self._run(self._open)

    def _open(self) -> None:
        assert self._path is not None
        try:
            self._file = HistoryFile(self._path)
        except HistoryDamaged as error:
            self._start_over(error)
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._is_kept = False
        log.warning("the history is limited to one hour: %s: %s", self._path, error)

    def _start_over(self, error: HistoryDamaged) -> None:
        """Rename the damaged file, and create a new one."""
        assert self._path is not None
        if self._file is not None:
            self._file.close()
            self._file = None
        damaged = self._path.with_suffix(".damaged")
        log.warning(
            "the history is damaged and starts over; %s is now %s: %s",
            self._path,
            damaged.name,
            error,
        )
        try:
            self._path.replace(damaged)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._file = HistoryFile(self._path)
        except (OSError, sqlite3.Error, HistoryDamaged) as again:
            self._give_up(again)

    async def stop(self) -> None:
        """Write the minute so far, and close the file."""
        await self._run(lambda: None)  # Wait for the thread, which may still open the file.
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        if self._deltas and self._file is not None:
            await self._write(self._minute, self._deltas)
        await self._run(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- Samples ---------------------------------------------------------------------------------

    def add(self, tables: Tables, deltas: Mapping[str, Delta], now_ms: int) -> None:
        """Add the changes of a sample; write the last minute to the file when it is over."""
        self._tables = tables
        minute = now_ms // MS // MINUTE_S * MINUTE_S
        if self._minute and minute > self._minute and self._file is not None:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write(self._minute, self._deltas))
                self._is_late = False
            elif not self._is_late:
                self._is_late = True
                log.warning(
                    "minutes of the history are lost: %s: an earlier minute is still being written",
                    self._path,
                )
            self._deltas = {}
        self._minute = minute
        if self._is_kept:
            for kind in KEPT:
                if kind in deltas:
                    self._deltas.setdefault(kind, []).append(deltas[kind])

    async def _write(self, at_s: int, deltas: Mapping[str, Sequence[Delta]]) -> None:
        points = []
        for kind, minute_deltas in deltas.items():
            delta = await self._run(partial(join_most_changed, minute_deltas))
            points += self._points(kind, delta, at_s)
        await self._run(partial(self._add, at_s, points))

    def _points(self, kind: str, delta: Delta, at_s: int) -> list[Point]:
        """Return the points of a minute's delta.

        Totals have one even without a change. Once an hour, and after a start of the console or the
        broker, so have the virtual hosts, up to ``MOVED_MAX``: older points are dropped in time.
        """
        table = self._tables[kind]
        indexes = {number: index for index, number in enumerate(delta.ids)}
        if kind not in MOVED:
            indexes = {number: indexes.get(number, -1) for number in table.slots}
        elif kind == VHOST and self._vhosts_written != (table, at_s // HOUR_S):
            self._vhosts_written = table, at_s // HOUR_S
            # A delta with less than the maximum has all changes, so the others have none.
            unchanged = (number for number in table.slots if number not in indexes)
            indexes |= dict.fromkeys(islice(unchanged, MOVED_MAX - len(indexes)), -1)
        points = []
        for number, index in indexes.items():
            slot = table.slots.get(number)
            if slot is not None:
                numbers = point_numbers(table, slot, delta, index)
                points.append(Point(kind, table.keys[slot], numbers))
        return points

    def _add(self, at_s: int, points: Sequence[Point]) -> None:
        if self._file is None:
            return
        try:
            self._file.add(at_s, points)
        except HistoryDamaged as error:
            self._start_over(error)
        except sqlite3.Error as error:
            log.warning("a minute of the history is lost: %s: %s", self._path, error)

    # --- Series ----------------------------------------------------------------------------------

    async def series(
        self, kind: str, key: Sequence[object], names: Sequence[str], span: str
    ) -> tuple[list[int], dict[str, Column]]:
        """Return columns over a span, "1m", "1h", "1d" or "30d".

        ``kind`` is a kind of objects, and ``key`` has the fields that name an object of it in
        ``Snapshot.tables``, such as virtual host and name for a queue. Only the kinds of
        ``KEPT`` have points in the file. The series of an exchange, connection, group or lease goes
        back for one hour at most, that of a channel for ten minutes.

        The times are the ends of the steps in Unix seconds, the oldest first; the last step
        contains the present. Counters have changes per second, gauges the last value of each step;
        unknown values are None.
        """
        period = SPANS[span]
        table = self._tables.get(kind)
        if table is None or not table.now_ms:
            return [], {name: [] for name in names}
        now_s = table.now_ms // MS
        last_s = now_s // period.step_s * period.step_s
        if period.step_s > SAMPLE_S:
            last_s += period.step_s
        count = period.seconds // period.step_s
        ends = [last_s - period.step_s * number for number in range(count - 1, -1, -1)]
        text = object_key(key)
        slot = table.by_key.get(text)
        columns: dict[str, Column] = {name: [None] * count for name in names}
        if period.step_s > SAMPLE_S and self._file is not None:
            await self._fill(columns, kind, text, period, ends)
        if slot is not None and period.step_s <= MINUTE_S and table.slots:
            fill_from_memory(columns, table, slot, ends, period.step_s)
        return [min(end, now_s) for end in ends], columns

    async def _fill(
        self, columns: dict[str, Column], kind: str, key: str, span: Span, ends: Sequence[int]
    ) -> None:
        """Put the points of the file into columns."""
        file, from_s = self._file, ends[0] - span.step_s
        if file is None:
            return

        def read() -> tuple[dict[int, Numbers], dict[int, Numbers]]:
            totals = file.points(TOTALS, TOTALS, span.kept_s, from_s)
            return totals, file.points(kind, key, span.kept_s, from_s)

        try:
            totals, points = await self._run(read)
        except (HistoryDamaged, sqlite3.Error) as error:
            log.warning("the history cannot be read: %s: %s", self._path, error)
            return
        if not points:
            return
        latest: Numbers = {}
        first = min(points)
        for at_s in sorted(at_s for at_s in points if at_s < from_s):
            latest = points[at_s]
        for index, end_s in enumerate(ends):
            steps = range(end_s - span.step_s, end_s, span.kept_s)
            # Totals have a point for every minute in which the console ran.
            recorded = [at_s for at_s in steps if at_s in totals and at_s >= first]
            if not recorded:
                continue
            point = join_points([points[at_s] for at_s in recorded if at_s in points])
            latest = {**latest, **all_gauges(point)} if point else latest
            seconds = len(recorded) * span.kept_s
            for name, column in columns.items():
                is_gauge = name in GAUGES
                column[index] = latest.get(name, 0) if is_gauge else point.get(name, 0) / seconds


def point_numbers(table: Table, slot: int, delta: Delta, index: int) -> Numbers:
    """Return the numbers of a point: gauges as they are, counters by their change."""
    values = {name: column[slot] for name, column in table.columns.items() if name in GAUGES}
    if index >= 0:
        values.update(
            (name, column[index]) for name, column in delta.changes.items() if name not in GAUGES
        )
    return {name: value for name, value in values.items() if value}


def all_gauges(point: Numbers) -> Numbers:
    """Return all gauges of a point; a gauge that the point lacks is zero."""
    return {name: point.get(name, 0) for name in GAUGES}


def join_most_changed(deltas: Sequence[Delta]) -> Delta:
    """Join the deltas of a minute, with at most ``MOVED_MAX`` objects: those that changed most."""
    counts: Counter[int] = Counter()
    for delta in deltas:
        counts.update(delta.ids)
    if len(counts) <= MOVED_MAX:
        return run_steps(join_deltas(deltas))
    moved: Counter[int] = Counter(dict.fromkeys(counts, 0))  # Changes of counters only.
    for delta in deltas:
        for name, column in delta.changes.items():
            if name not in GAUGES:
                moved.update(dict(zip(delta.ids, map(abs, column), strict=True)))
    selected = {number for number, _ in moved.most_common(MOVED_MAX)}
    return run_steps(join_deltas([delta.select(selected) for delta in deltas]))


def fill_from_memory(
    columns: dict[str, Column], table: Table, slot: int, ends: Sequence[int], step_s: int
) -> None:
    """Fill columns from the deltas in memory, from the first sample of an object on."""
    since_ms = max(table.born_ms[slot], table.since_ms())
    moments = [min(end * MS, table.now_ms) for end in reversed(ends)]
    moments.append((ends[0] - step_s) * MS)
    for name, column in columns.items():
        if name not in table.columns:
            continue
        is_gauge = name in GAUGES
        values: Sequence[float] = table.values_at(slot, (name,), moments)
        if not is_gauge:
            values = table.counts_at(slot, (name,), moments)
        for index, moment in enumerate(moments[:-1]):
            seconds = (moment - moments[index + 1]) / MS
            if moment + LATE_MS < since_ms and not (is_gauge and not index):
                break
            if is_gauge:
                column[len(column) - 1 - index] = values[index]
            elif seconds >= SAMPLE_S:  # A shorter last step has no rate yet.
                change = values[index] - values[index + 1]
                column[len(column) - 1 - index] = change / seconds
