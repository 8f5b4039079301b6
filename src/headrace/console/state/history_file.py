# SPDX-License-Identifier: Apache-2.0
"""The file of the history, in SQLite: a point of each series per minute and per ten minutes.

Points of minutes are kept for two days, points of ten minutes for 30 days. All methods run on one
thread, not on that of the event loop. :mod:`.history` opens the file at the start, and writes the
last minute at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import TYPE_CHECKING, NamedTuple

from headrace.measures import GAUGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

BYTES_MAX = 256 << 20  # The file's size, beyond which old points are deleted.
VERSION = 1  # The version of the file's tables.
MINUTE_S, TEN_MINUTES_S = 60, 600
KEPT_S = {MINUTE_S: 2 * 86_400, TEN_MINUTES_S: 30 * 86_400}
SHARE = 20  # A full file drops a twentieth of the points of a group of kinds at a time.
# The kinds whose points a full file drops: those of the group with more points.
DROPPED_KINDS = ("'queue', 'user'", "'vhost'")
TABLES = """
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, UNIQUE (kind, key)
);
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL, step_s INTEGER NOT NULL, at_s INTEGER NOT NULL, point TEXT NOT NULL,
    PRIMARY KEY (series, step_s, at_s)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS points_by_age ON points (step_s, at_s);
"""
COUNT = "SELECT count(*) FROM points JOIN series ON id = series WHERE kind IN ({}) AND step_s = ?"
DROP = """
DELETE FROM points WHERE (series, step_s, at_s) IN (
    SELECT series, step_s, at_s FROM points JOIN series ON id = series
    WHERE kind IN ({}) AND step_s = ? ORDER BY at_s LIMIT ?
)
"""
DROP_SERIES = "DELETE FROM series WHERE id NOT IN (SELECT DISTINCT series FROM points)"
POINTS = """
SELECT at_s, point FROM points WHERE series = :series AND step_s = :step_s AND at_s >= coalesce(
    (SELECT max(at_s) FROM points WHERE series = :series AND step_s = :step_s AND at_s < :from_s), 0
) ORDER BY at_s
"""

Numbers = dict[str, int]  # Numbers by column; missing ones are zero.


class Point(NamedTuple):
    """The numbers of an object over a step: the growth of counters, the last values of gauges."""

    kind: str
    key: str
    numbers: Numbers


class HistoryDamaged(Exception):
    """The file cannot be read; the text is the reason."""


class HistoryFile:
    """An open file of the history."""

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX) -> None:
        """Open the file; create it if it does not exist.

        Raises:
            HistoryDamaged: the file is not a history, or is damaged.
            OSError: the file cannot be created.
            sqlite3.OperationalError: another process has it open.
        """
        self._path = path
        self._bytes_max = bytes_max
        path.parent.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        self._database = sqlite3.connect(path, timeout=0.0, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        with detect_damage():
            run = self._database.execute
            run("PRAGMA locking_mode = EXCLUSIVE")  # Nor does SQLite need a file of shared memory.
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = NORMAL")
            run("PRAGMA journal_size_limit = 8388608")
            (version,) = run("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise HistoryDamaged(f"it is of version {version}, not {VERSION}")
            (outcome,) = run("PRAGMA quick_check(1)").fetchone()
            if outcome != "ok":
                raise HistoryDamaged(str(outcome))
            self._database.executescript(TABLES)
            run(f"PRAGMA user_version = {VERSION}")
            self._database.commit()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # --- Writing ---------------------------------------------------------------------------------

    def add(self, at_s: int, points: Iterable[Point]) -> None:
        """Add the points of the minute that began at ``at_s``, and drop old points.

        The last minute of ten adds their sum as a point of ten minutes.

        Raises:
            HistoryDamaged: the file is damaged.
        """
        with detect_damage(), self._database:
            self._insert(MINUTE_S, at_s, points)
            if (at_s + MINUTE_S) % TEN_MINUTES_S == 0:
                self._roll_up(at_s + MINUTE_S - TEN_MINUTES_S)
            self._drop_old(at_s)

    def _insert(self, step_s: int, at_s: int, points: Iterable[Point]) -> None:
        run = self._database.execute
        for point in points:
            row = run(
                "SELECT id FROM series WHERE kind = ? AND key = ?", (point.kind, point.key)
            ).fetchone()
            if row is None:
                inserted = run(
                    "INSERT INTO series (kind, key) VALUES (?, ?)", (point.kind, point.key)
                )
                row = (inserted.lastrowid,)
            run(
                "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)",
                (row[0], step_s, at_s, json.dumps(point.numbers, separators=(",", ":"))),
            )

    def _roll_up(self, from_s: int) -> None:
        """Add the points of ten minutes, each the sum of its minutes."""
        rows = self._database.execute(
            "SELECT series, at_s, point FROM points WHERE step_s = ? AND at_s >= ? AND at_s < ?"
            " ORDER BY at_s",
            (MINUTE_S, from_s, from_s + TEN_MINUTES_S),
        )
        by_series: dict[int, list[Numbers]] = {}
        for series, _, text in rows:
            by_series.setdefault(series, []).append(json.loads(text))
        self._database.executemany(
            "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)",
            (
                (
                    series,
                    TEN_MINUTES_S,
                    from_s,
                    json.dumps(join_points(minutes), separators=(",", ":")),
                )
                for series, minutes in by_series.items()
            ),
        )

    def _drop_old(self, now_s: int) -> None:
        run = self._database.execute
        for step_s, kept_s in KEPT_S.items():
            run("DELETE FROM points WHERE step_s = ? AND at_s < ?", (step_s, now_s - kept_s))
        for step_s in KEPT_S:
            while self.size() > self._bytes_max and self._drop_oldest(step_s):
                run(DROP_SERIES)
        if now_s % 3600 == 0:
            run(DROP_SERIES)

    def _drop_oldest(self, step_s: int) -> int:
        """Drop the oldest points of queues and users or of virtual hosts; return their number.

        Points of the group with more points are dropped, so neither group displaces the other.
        """
        run = self._database.execute
        counts = [run(COUNT.format(kinds), (step_s,)).fetchone()[0] for kinds in DROPPED_KINDS]
        most = max(counts)
        kinds = DROPPED_KINDS[counts.index(most)]
        return run(DROP.format(kinds), (step_s, most // SHARE + 1)).rowcount

    def size(self) -> int:
        """Return the bytes that are in use."""
        run = self._database.execute
        pages, free, size = (
            run(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    # --- Reading ---------------------------------------------------------------------------------

    def points(self, kind: str, key: str, step_s: int, from_s: int) -> dict[int, Numbers]:
        """Return the points of a series from ``from_s`` on, by the start of their step.

        The last point before that time is included.

        Raises:
            HistoryDamaged: the file is damaged.
        """
        with detect_damage():
            row = self._database.execute(
                "SELECT id FROM series WHERE kind = ? AND key = ?", (kind, key)
            ).fetchone()
            if row is None:
                return {}
            parameters = {"series": row[0], "step_s": step_s, "from_s": from_s}
            rows = self._database.execute(POINTS, parameters)
            return {at_s: json.loads(text) for at_s, text in rows}


def join_points(points: Iterable[Mapping[str, int]]) -> Numbers:
    """Return one point for several consecutive ones: sums of counters, last values of gauges."""
    sums: Numbers = {}
    for point in points:
        sums = {name: value for name, value in sums.items() if name not in GAUGES}
        for name, value in point.items():
            sums[name] = value if name in GAUGES else sums.get(name, 0) + value
    return sums


@contextlib.contextmanager
def detect_damage() -> Iterator[None]:
    """Raise HistoryDamaged for the errors by which SQLite reports a damaged file."""
    try:
        yield
    except sqlite3.OperationalError:
        raise
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        raise HistoryDamaged(str(error)) from None
