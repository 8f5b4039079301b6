# SPDX-License-Identifier: Apache-2.0
"""Find the columns, and the bounds of offsets and times, that a query needs of each source.

DuckDB plans the query over tables without rows. Its plan has the projection and the filters of
each scan. The bounds only avoid reads, as DuckDB filters the rows itself.
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
# Pruning by statistics would find empty tables and plan no scan.
DISABLED: Final = "statistics_propagation,empty_result_pullup"
_TERM: Final = re.compile(
    r"\((offset|timestamp) (>=|>|<=|<|=) (?:(\d{1,19})|'([^']+)'::TIMESTAMP WITH TIME ZONE)\)"
)


@dataclass(slots=True)
class ScanNeeds:
    """The columns of a source, and bounds that its rows have in every scan of the query."""

    columns: set[str] = field(default_factory=set)
    first: int = 0
    last: int = OFFSET_END
    since: datetime | None = None
    until: datetime | None = None

    def widen(self, other: ScanNeeds) -> None:
        """Extend columns and bounds by those of another scan of the source."""
        self.columns |= other.columns
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.since = _widen_bound(self.since, other.since, min)
        self.until = _widen_bound(self.until, other.until, max)


def query_needs(
    connection: duckdb.DuckDBPyConnection, sql: str, schemas: Mapping[str, pa.Schema]
) -> dict[str, ScanNeeds]:
    """Return the columns and bounds of each source that the plan of a query scans.

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
    by_name: dict[str, ScanNeeds] = {}
    for info in _scans(json.loads(rows[0][1])):
        name = str(info.get("Table", "")).rpartition(".")[2]
        if name.startswith(NAME_PREFIX) and name in schemas:
            scan = _read_scan(info, schemas[name].names)
            if name in by_name:
                by_name[name].widen(scan)
            else:
                by_name[name] = scan
    return by_name


def _scans(plan: list[JsonObject]) -> Iterator[JsonObject]:
    for node in plan:
        if "SCAN" in node["name"]:
            yield node["extra_info"]
        yield from _scans(node["children"])


def _read_scan(info: JsonObject, names: list[str]) -> ScanNeeds:
    projections, filters = _to_texts(info.get("Projections")), _to_texts(info.get("Filters"))
    scan_needs = ScanNeeds()
    for text in projections:
        base = text if text in names else text.partition(".")[0]
        scan_needs.columns |= {base} & set(names) or set(names)  # Unknown: all of them.
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
                limit += timedelta(milliseconds=1)  # An upper bound for each sign.
                scan_needs.until = (
                    limit if scan_needs.until is None else min(scan_needs.until, limit)
                )


def _widen_bound(
    first: datetime | None,
    second: datetime | None,
    choose: Callable[[datetime, datetime], datetime],
) -> datetime | None:
    """Return the looser of two bounds; None is no bound."""
    return None if first is None or second is None else choose(first, second)
