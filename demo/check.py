# SPDX-License-Identifier: Apache-2.0
"""Comparison of the demo's results with results that pandas computes from the package's data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.dataset as ds
from deltalake import DeltaTable

from demo.flights import read_airlines, read_airports
from demo.pipeline import ALERT_MINUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

SUMS = ("dep_delay", "arr_delay", "air_time", "distance")


@dataclass(frozen=True)
class Check:
    """One comparison of an expected value with the value found in the results."""

    name: str
    expected: object
    found: object

    @property
    def passed(self) -> bool:
        """True if both values are equal."""
        return self.expected == self.found


def aggregate_by_day(frame: pd.DataFrame) -> pd.DataFrame:
    """Return flights, departures and delays by day of scheduled departure and origin."""
    day = pd.to_datetime(frame[["year", "month", "day"]]).rename("day")
    delays = frame.dep_delay.astype("Float64")
    grouped = delays.groupby([day, frame.origin])
    return pd.DataFrame(
        {
            "flights": grouped.size(),
            "departed": grouped.count(),
            "minutes": grouped.sum().astype("Int64"),
            "worst": grouped.max().astype("Int64"),
        }
    ).sort_index()


def read_windows(path: Path) -> pd.DataFrame:
    """Return the results of the query `delays`, a row for each window."""
    windows = DeltaTable(path).to_pyarrow_table().to_pandas()
    windows["day"] = windows.day.dt.tz_localize(None).astype("datetime64[ns]")
    numbers = ["flights", "departed", "minutes", "worst"]
    windows[numbers] = windows[numbers].astype("Int64")
    return windows.set_index(["day", "origin"])[numbers].sort_index()


def read_archive(path: Path) -> pd.DataFrame:
    """Return the flights in the archive, in the order of the stream."""
    table = ds.dataset(path, partitioning="hive").to_table()
    return table.to_pandas().sort_values("offset", ignore_index=True)


def compare(
    frame: pd.DataFrame, archived: pd.DataFrame, windows: pd.DataFrame, counts: dict[str, int]
) -> Iterator[Check]:
    """Yield all checks; `frame` is the package's data in the order of publishing."""
    total = len(frame)
    yield Check("messages confirmed to the publisher", total, counts["confirmed"])
    yield Check("messages in the durable queue", total, counts["queued"])
    yield Check("flights in the archive", total, len(archived))
    yield Check(
        "offsets in the archive",
        f"0 to {total - 1}, each once",
        _describe_offsets(archived.offset, total),
    )
    for name in SUMS:
        yield Check(f"sum of {name}", int(frame[name].sum()), int(archived[name].sum()))
    yield Check("flights by month", _count_by_month(frame), _count_by_month(archived))
    yield Check("flights that differ in any field", 0, _count_different_flights(frame, archived))
    yield Check("names from the joins that differ", 0, _count_wrong_names(frame, archived))
    expected = aggregate_by_day(frame)
    yield Check("windows per origin and day", len(expected), len(windows))
    yield Check("windows that differ", 0, _count_differences(expected, windows))
    late = frame.dep_delay[(frame.dep_delay > ALERT_MINUTES).fillna(False)]
    yield Check("alerts received", len(late), counts["alerts"])
    yield Check("minutes in the alerts", int(late.sum()), counts["minutes"])


def _describe_offsets(offsets: pd.Series, total: int) -> str:
    if sorted(offsets) == list(range(total)):
        return f"0 to {total - 1}, each once"
    return f"{offsets.min()} to {offsets.max()}, {offsets.nunique()} of {len(offsets)} distinct"


def _count_by_month(frame: pd.DataFrame) -> str:
    by_month = frame.month.value_counts().sort_index().to_dict()
    return json.dumps(list(by_month.values()))


def _count_different_flights(frame: pd.DataFrame, archived: pd.DataFrame) -> int:
    """Return the number of flights with another value in any field."""
    if len(frame) != len(archived):
        return abs(len(frame) - len(archived))
    return _count_differences(frame, archived[list(frame.columns)])


def _count_wrong_names(frame: pd.DataFrame, archived: pd.DataFrame) -> int:
    """Return the number of flights with another name of the airline or an airport."""
    places = read_airports()[["faa", "name"]]
    joined = (
        frame[["carrier", "origin", "dest"]]
        .merge(read_airlines().set_axis(["carrier", "airline"], axis=1), how="left", on="carrier")
        .merge(places.set_axis(["origin", "origin_name"], axis=1), how="left", on="origin")
        .merge(places.set_axis(["dest", "dest_name"], axis=1), how="left", on="dest")
    )
    names = ["airline", "origin_name", "dest_name"]
    if len(joined) != len(archived):
        return abs(len(joined) - len(archived))
    return _count_differences(joined[names], archived[names])


def _count_differences(expected: pd.DataFrame, found: pd.DataFrame) -> int:
    """Return the number of rows that differ; two missing values are equal."""
    if not expected.index.equals(found.index):
        return len(expected.index.symmetric_difference(found.index))
    is_different = pd.Series(False, index=expected.index)
    for name in expected.columns:
        left, right = (_to_comparable(side[name]) for side in (expected, found))
        both_missing = left.isna() & right.isna()
        is_different |= ~((left == right).fillna(False).astype(bool) | both_missing)
    return int(is_different.sum())


def _to_comparable(column: pd.Series) -> pd.Series:
    """Return numbers with missing values as nullable floats, and other values as objects."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype("Float64")
    return column.astype(object).where(column.notna(), None)
