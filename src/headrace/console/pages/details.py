# SPDX-License-Identifier: Apache-2.0
"""Pages of one object: its facts, what belongs to it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.http.answers import Listed
from headrace.console.http.paging import in_order
from headrace.console.http.routes import MANAGEMENT, Route
from headrace.console.pages.listings import Column, Link, row_of
from headrace.console.pages.rendering import page

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.http.routes import Handler
    from headrace.untyped import JsonObject

PART_ROWS = 200  # Of a table within a page; the list itself has all.


@dataclass(frozen=True, slots=True)
class Part:
    """A table of what belongs to an object."""

    title: str
    columns: tuple[Column, ...]
    rows: Handler | None = None  # The API's; or:
    field: str = ""  # the field of the object that has the rows.
    link: Callable[[JsonObject], str] | None = None
    empty: str = "There are none."
    more: Callable[[HttpCall], str] | None = None  # The address of the whole list.


@dataclass(frozen=True, slots=True)
class DetailPage:
    """A page that shows one object."""

    path: str
    kind: str  # What it is, such as "Queue".
    parent: tuple[str, str]  # Title and address of the list it is in.
    show_object: Handler  # The API's.
    name: Callable[[JsonObject], str]
    facts: tuple[Column, ...]
    parts: tuple[Part, ...] = ()
    actions: Callable[[HttpCall, JsonObject], list[Link]] | None = None
    chart: Callable[[JsonObject], str] | None = None  # The address of the chart's numbers.
    chart_title: str = "Messages"
    tag: str = MANAGEMENT
    command: Callable[[JsonObject], str] | None = None

    def route(self) -> Route:
        """Return the route of the page."""
        return Route("GET", self.path, self.show, self.tag, "", f"{self.kind}.", page=True)

    async def show(self, call: HttpCall) -> object:
        """Return the page."""
        found = await self.show_object(call)
        assert isinstance(found, dict)
        name = self.name(found)
        parts = [(part, *await self._rows(call, part, found)) for part in self.parts]
        links = [] if self.actions is None else self.actions(call, found)
        return page(
            call,
            "detail.html",
            f"{self.kind} {name}",
            detail=self,
            name=name,
            facts=[(fact, fact.value(found)) for fact in self.facts],
            parts_of_page=parts,
            actions=[one for one in links if one.is_for(call.identity.tags)],
            chart="" if self.chart is None else self.chart(found),
            command="" if self.command is None else self.command(found),
        )

    async def _rows(
        self, call: HttpCall, part: Part, found: JsonObject
    ) -> tuple[list[object], int, str]:
        """Return the first rows of a part, how many there are, and where the others are."""
        if part.rows is None:
            rows = list(found[part.field])
        else:
            listed = await part.rows(call)
            assert isinstance(listed, Listed)
            rows = in_order(list(listed.rows), {}, listed.order)
        more = "" if part.more is None else part.more(call)
        some = [row_of(row, part.columns, part.link) for row in rows[:PART_ROWS]]
        return list(some), len(rows), more
