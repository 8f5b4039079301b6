# SPDX-License-Identifier: Apache-2.0
"""Search of a query's plan for the columns and the offsets and times that each source must have.

DuckDB plans the query over tables without rows. Its plan has the projection and the filters of
each scan. The bounds only avoid reads, because DuckDB filters the rows itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.sql.statement import NAME_PREFIX

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from headrace.untyped import JsonObject

OFFSET_END: Final = 1 << 63  # Above every offset.
# These optimizers would find that the tables are empty, and plan no scan.
DISABLED: Final = "statistics_propagation,empty_result_pullup"
_TERM: Final = re.compile(
    r"\((offset|timestamp) (>=|>|<=|<|=) (?:(\d{1,19})|'([^']+)'::TIMESTAMP WITH TIME ZONE)\)"
)


@dataclass(slots=True)
class ScanNeeds:
    """The columns and rows of a source that the scans of a query need."""

    columns: set[str] = field(default_factory=set)
    first: int = 0  # The first offset.
    last: int = OFFSET_END  # The offset after the last one.
    since: datetime | None = None  # The earliest arrival; None for no bound.
    until: datetime | None = None  # The end of arrivals, exclusive; None for no bound.

    def widen(self, other: ScanNeeds) -> None:
        """Extend columns and bounds to include those of another scan of the source."""
        self.columns |= other.columns
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.since = _widen_bound(self.since, other.since, min)
        self.until = _widen_bound(self.until, other.until, max)


def find_needs(
    connection: duckdb.DuckDBPyConnection, sql: str, schemas: Mapping[str, pa.Schema]
) -> dict[str, ScanNeeds]:
    """Return the needs of a query by source; `schemas` has the columns of each source.

    A source without an entry may be needed completely.

    Raises:
        duckdb.Error: the query refers to columns or functions that do not exist.
    """
    for name, schema in schemas.items():
        connection.register(f"{name}_empty", schema.empty_table())
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}_empty")  # noqa: S608
        connection.unregister(f"{name}_empty")
    connection.execute(f"SET disabled_optimizers = '{DISABLED}'")
    try:
        rows = connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
    finally:
        connection.execute("RESET disabled_optimizers")
        for name in schemas:
            connection.execute(f"DROP TABLE {name}")
    needs_by_name: dict[str, ScanNeeds] = {}
    for info in _find_scans(json.loads(rows[0][1])):
        name = str(info.get("Table", "")).rpartition(".")[2]
        if name.startswith(NAME_PREFIX) and name in schemas:
            scan = _read_scan(info, schemas[name].names)
            if name in needs_by_name:
                needs_by_name[name].widen(scan)
            else:
                needs_by_name[name] = scan
    return needs_by_name


def _find_scans(plan: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield the properties of each scan in a plan."""
    for node in plan:
        if "SCAN" in node["name"]:
            yield node["extra_info"]
        yield from _find_scans(node["children"])


def _read_scan(info: JsonObject, names: list[str]) -> ScanNeeds:
    """Return the needs of one scan, from its projections and filters."""
    projections, filters = _to_texts(info.get("Projections")), _to_texts(info.get("Filters"))
    scan_needs = ScanNeeds()
    for text in projections:
        base = text if text in names else text.partition(".")[0]
        scan_needs.columns |= {base} & set(names) or set(names)  # All for an unknown text.
    for text in filters:
        scan_needs.columns |= {name for name in names if name in text}
        _apply_filter(scan_needs, text)
    return scan_needs


def _to_texts(info: object) -> list[str]:
    if isinstance(info, list):
        return [str(item) for item in info]
    return [str(info)] if info else []


def _apply_filter(scan_needs: ScanNeeds, text: str) -> None:
    """Narrow the bounds by a filter that consists of comparisons joined by AND."""
    if set(_TERM.sub("", text).replace(" AND ", "")) - set("()"):
        return
    for column, sign, number, moment in _TERM.findall(text):
        if column == "offset" and number:
            value = int(number)
            if sign in (">=", ">", "="):
                scan_needs.first = max(scan_needs.first, value + (sign == ">"))
            if sign in ("<=", "<", "="):
                scan_needs.last = min(scan_needs.last, value + (sign != "<"))
        elif column == "timestamp" and moment:
            limit = datetime.fromisoformat(moment)
            if sign in (">=", ">", "="):
                scan_needs.since = (
                    limit if scan_needs.since is None else max(scan_needs.since, limit)
                )
            if sign in ("<=", "<", "="):
                limit += timedelta(
                    milliseconds=1
                )  # Exclusive, so a millisecond later fits each of the signs.
                scan_needs.until = (
                    limit if scan_needs.until is None else min(scan_needs.until, limit)
                )


def _widen_bound(
    first: datetime | None,
    second: datetime | None,
    choose: Callable[[datetime, datetime], datetime],
) -> datetime | None:
    """Return the wider of two bounds, by `choose`; None means no bound."""
    return None if first is None or second is None else choose(first, second)
