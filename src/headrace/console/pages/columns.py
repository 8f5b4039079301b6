# SPDX-License-Identifier: Apache-2.0
"""Columns of tables, and facts of objects: title, path and kind of a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.pages.rendering import NUMERIC
from headrace.console.pages.texts import ack_mode

if TYPE_CHECKING:
    from headrace.console.pages.links import RowAddress

EMPTY: tuple[object, ...] = (None, "", {}, [])
#: Values that phones do not show, by the kind of a column; a count of 0 is shown.
NEGLIGIBLE: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("number", "bytes", "duration"), (None,)),
    **dict.fromkeys(("rate", "flag"), (None, 0)),
}
ADDRESS = "address"  # The kind of a column of links, each with the column's title.


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, or a fact of an object."""

    title: str
    path: str  # The keys of the value in a row, separated by dots.
    kind: str = "text"  # A key of rendering.FORMATTERS.
    is_sortable: bool = True
    address: RowAddress | None = None  # Returns the address of the value's page.

    @property
    def is_numeric(self) -> bool:
        """True if the values are aligned to the right."""
        return self.kind in NUMERIC

    def css_classes(self, value: object) -> str:
        """Return the CSS classes of a cell; ``nil`` hides a value on phones."""
        is_negligible = value in NEGLIGIBLE.get(self.kind, EMPTY)
        return " ".join(["number"] * self.is_numeric + ["nil"] * is_negligible)

    def file_value(self, row: Mapping[str, object]) -> object:
        """Return the value of a row for a file: acknowledgement modes as words."""
        value = self.value(row)
        return ack_mode(value) if self.kind == "ack" and value is not None else value

    def value(self, row: Mapping[str, object]) -> object:
        """Return the value of a row; None if the row has none."""
        value: object = row
        for key in self.path.split("."):
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value


def omit_columns(columns: tuple[Column, ...], *titles: str) -> tuple[Column, ...]:
    """Return columns without the columns of these titles."""
    return tuple(column for column in columns if column.title not in titles)
