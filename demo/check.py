# SPDX-License-Identifier: Apache-2.0
"""What should have come out, computed with pandas from the package alone, and what did."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.dataset as ds
from deltalake import DeltaTable

from demo.flights import airlines, airports
from demo.pipeline import ALERT_MINUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

SUMS = ("dep_delay", "arr_delay", "air_time", "distance")


@dataclass(frozen=True)
class Check:
    """One number, or one table, that must be the same on both sides."""

    name: str
    expected: object
    found: object

    @property
    def passed(self) -> bool:
        """Whether both are the same."""
        return self.expected == self.found


def daily(frame: pd.DataFrame) -> pd.DataFrame:
    """Flights, departures and delays per origin and day of scheduled departure."""
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


def windows(path: Path) -> pd.DataFrame:
    """What the query `delays` left: a row for each window."""
    found = DeltaTable(path).to_pyarrow_table().to_pandas()
    found["day"] = found.day.dt.tz_localize(None).astype("datetime64[ns]")
    numbers = ["flights", "departed", "minutes", "worst"]
    found[numbers] = found[numbers].astype("Int64")
    return found.set_index(["day", "origin"])[numbers].sort_index()


def archive(path: Path) -> pd.DataFrame:
    """Every flight in the archive, in the order of the stream."""
    table = ds.dataset(path, partitioning="hive").to_table()
    return table.to_pandas().sort_values("offset", ignore_index=True)


def checks(
    frame: pd.DataFrame, archived: pd.DataFrame, found: pd.DataFrame, counts: dict[str, int]
) -> Iterator[Check]:
    """Compare everything; `frame` is the package's data in the order of publishing."""
    total = len(frame)
    yield Check("messages confirmed to the publisher", total, counts["confirmed"])
    yield Check("messages in the durable queue", total, counts["queued"])
    yield Check("flights in the archive", total, len(archived))
    yield Check(
        "offsets in the archive", f"0 to {total - 1}, each once", _offsets(archived.offset, total)
    )
    for name in SUMS:
        yield Check(f"sum of {name}", int(frame[name].sum()), int(archived[name].sum()))
    yield Check("flights by month", _by_month(frame), _by_month(archived))
    yield Check("flights that differ in any field", 0, _different(frame, archived))
    yield Check("names from the joins that differ", 0, _misnamed(frame, archived))
    expected = daily(frame)
    yield Check("windows per origin and day", len(expected), len(found))
    yield Check("windows that differ", 0, _rows_that_differ(expected, found))
    late = frame.dep_delay[(frame.dep_delay > ALERT_MINUTES).fillna(False)]
    yield Check("alerts received", len(late), counts["alerts"])
    yield Check("minutes in the alerts", int(late.sum()), counts["minutes"])


def _offsets(offsets: pd.Series, total: int) -> str:
    if sorted(offsets) == list(range(total)):
        return f"0 to {total - 1}, each once"
    return f"{offsets.min()} to {offsets.max()}, {offsets.nunique()} of {len(offsets)} distinct"


def _by_month(frame: pd.DataFrame) -> str:
    by_month = frame.month.value_counts().sort_index().to_dict()
    return json.dumps(list(by_month.values()))


def _different(frame: pd.DataFrame, archived: pd.DataFrame) -> int:
    if len(frame) != len(archived):
        return abs(len(frame) - len(archived))
    return _rows_that_differ(frame, archived[list(frame.columns)])


def _misnamed(frame: pd.DataFrame, archived: pd.DataFrame) -> int:
    places = airports()[["faa", "name"]]
    joined = (
        frame[["carrier", "origin", "dest"]]
        .merge(airlines().set_axis(["carrier", "airline"], axis=1), how="left", on="carrier")
        .merge(places.set_axis(["origin", "origin_name"], axis=1), how="left", on="origin")
        .merge(places.set_axis(["dest", "dest_name"], axis=1), how="left", on="dest")
    )
    names = ["airline", "origin_name", "dest_name"]
    if len(joined) != len(archived):
        return abs(len(joined) - len(archived))
    return _rows_that_differ(joined[names], archived[names])


def _rows_that_differ(expected: pd.DataFrame, found: pd.DataFrame) -> int:
    """How many rows are not the same; two missing values are."""
    if not expected.index.equals(found.index):
        return len(expected.index.symmetric_difference(found.index))
    wrong = pd.Series(False, index=expected.index)
    for name in expected.columns:
        left, right = (_comparable(side[name]) for side in (expected, found))
        both_missing = left.isna() & right.isna()
        wrong |= ~((left == right).fillna(False).astype(bool) | both_missing)
    return int(wrong.sum())


def _comparable(column: pd.Series) -> pd.Series:
    """Numbers as numbers that know what is missing, all else as objects."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype("Float64")
    return column.astype(object).where(column.notna(), None)
