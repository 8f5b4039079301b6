# SPDX-License-Identifier: Apache-2.0
"""The checks of the demo find what is wrong, and its input is in order."""

from __future__ import annotations

import io
import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from rich.console import Console

import demo.__main__ as program
from demo import check
from demo.flights import format_json, read_airlines, read_airports, read_flights
from demo.pipeline import ALERT_MINUTES
from support.timeouts import PATIENCE_S

ADDRESS = re.compile(r"look at the broker meanwhile: (http://\S+) ")


@pytest.fixture(scope="module")
def year() -> pd.DataFrame:
    """All flights."""
    return read_flights()


@pytest.fixture
def frame(year: pd.DataFrame) -> pd.DataFrame:
    """Every fiftieth flight: all origins, late ones, ones that never left."""
    return year.iloc[::50].reset_index(drop=True)


@pytest.fixture
def archived(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the archive of a run without failures."""
    places = read_airports().set_index("faa").name
    return frame.assign(
        offset=range(len(frame)),
        airline=frame.carrier.map(read_airlines().set_index("carrier").name),
        origin_name=frame.origin.map(places),
        dest_name=frame.dest.map(places),
    )


@pytest.fixture
def counts(frame: pd.DataFrame) -> dict[str, int]:
    """Return the programs' counts of a run without failures."""
    late = frame.dep_delay[(frame.dep_delay > ALERT_MINUTES).fillna(False)]
    total = len(frame)
    return {
        "confirmed": total,
        "queued": total,
        "alerts": len(late),
        "minutes": int(late.sum()),
    }


def test_the_demo_prints_the_address_of_the_console_while_the_broker_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The demo starts its broker; flights and Spark are left out."""
    pages: list[bytes] = []

    def visit(console: Console, *_: object) -> None:
        (address,) = ADDRESS.findall(output.getvalue())
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            pages.append(answer.read())

    output = io.StringIO()
    monkeypatch.setattr(program, "Console", lambda: Console(file=output, width=200))
    monkeypatch.setattr(program, "_run", visit)
    monkeypatch.setattr(program, "_report", lambda *_: True)
    done = CliRunner().invoke(program.main, ["--out", str(tmp_path)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert b'name="password"' in pages[0]


def failed(
    frame: pd.DataFrame, archived: pd.DataFrame, windows: pd.DataFrame, counts: dict[str, int]
) -> list[str]:
    """The names of the checks that do not pass."""
    return [one.name for one in check.compare(frame, archived, windows, counts) if not one.passed]


def test_the_flights_are_in_order_of_scheduled_departure(year: pd.DataFrame) -> None:
    assert len(year) == 336_776
    departure = pd.to_datetime(year[["year", "month", "day", "hour", "minute"]])
    assert departure.is_monotonic_increasing


def test_a_flight_that_never_left_is_null_in_json(year: pd.DataFrame) -> None:
    missing = year[year.dep_time.isna()].head(1)
    (line,) = format_json(missing)
    flight = json.loads(line)
    assert flight["dep_time"] is None
    assert flight["dep_delay"] is None
    assert flight["sched_dep_time"] == missing.sched_dep_time.iloc[0]
    assert list(flight) == list(year.columns)


def test_nothing_wrong_passes(
    frame: pd.DataFrame, archived: pd.DataFrame, counts: dict[str, int]
) -> None:
    assert failed(frame, archived, check.aggregate_by_day(frame), counts) == []


def _lost(archived: pd.DataFrame) -> pd.DataFrame:
    return archived.drop(index=7)


def _twice(archived: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([archived, archived.tail(1)], ignore_index=True)


def _swapped(archived: pd.DataFrame) -> pd.DataFrame:
    changed = archived.copy()
    changed.loc[[3, 4], "tailnum"] = ["N1", "N2"]
    return changed


def _filled(archived: pd.DataFrame) -> pd.DataFrame:
    return archived.assign(dep_delay=archived.dep_delay.fillna(0))


def _misnamed(archived: pd.DataFrame) -> pd.DataFrame:
    return archived.assign(airline=archived.airline.str.replace("Delta", "Alpha"))


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (_lost, "flights in the archive"),
        (_lost, "offsets in the archive"),
        (_twice, "offsets in the archive"),
        (_twice, "sum of distance"),
        (_swapped, "flights that differ in any field"),
        (_filled, "flights that differ in any field"),
        (_misnamed, "names from the joins that differ"),
    ],
)
def test_a_spoilt_archive_is_noticed(
    frame: pd.DataFrame,
    archived: pd.DataFrame,
    counts: dict[str, int],
    spoil: Callable[[pd.DataFrame], pd.DataFrame],
    name: str,
) -> None:
    assert name in failed(frame, spoil(archived), check.aggregate_by_day(frame), counts)


def test_a_wrong_window_is_noticed(
    frame: pd.DataFrame, archived: pd.DataFrame, counts: dict[str, int]
) -> None:
    windows = check.aggregate_by_day(frame)
    wrong = windows.assign(minutes=windows.minutes.where(windows.index != windows.index[5], 1))
    assert failed(frame, archived, wrong, counts) == ["windows that differ"]
    assert failed(frame, archived, windows.iloc[1:], counts) == [
        "windows per origin and day",
        "windows that differ",
    ]


@pytest.mark.parametrize("count", ["confirmed", "queued", "alerts", "minutes"])
def test_a_wrong_count_is_noticed(
    frame: pd.DataFrame, archived: pd.DataFrame, counts: dict[str, int], count: str
) -> None:
    spoilt = {**counts, count: counts[count] - 1}
    assert len(failed(frame, archived, check.aggregate_by_day(frame), spoilt)) == 1
