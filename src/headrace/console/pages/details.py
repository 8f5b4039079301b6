# SPDX-License-Identifier: Apache-2.0
"""Pages of one object: its facts, its charts, tables of related objects, and links to actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from headrace.console.http.routes import Route
from headrace.console.pages.inner_tables import QUERY, InnerTable, export_table, table_views
from headrace.console.pages.links import links_for
from headrace.console.pages.rendering import page
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.columns import Column
    from headrace.console.pages.links import Charts, Link
    from headrace.untyped import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailPage:
    """A page that shows one object."""

    path: str
    kind: str  # The kind of the object, such as "Queue".
    parent: tuple[str, str]  # Title and path of the list with the object.
    show_object: Callable[[HttpCall], Awaitable[JsonObject]]
    name: Callable[[JsonObject], str] = itemgetter("name")  # Returns the name for the heading.
    facts: tuple[Column, ...]
    tables: tuple[InnerTable, ...] = ()
    links: Callable[[HttpCall, JsonObject], list[Link]] | None = None
    charts: Callable[[JsonObject], Charts] | None = None
    about: str = ""
    tag: str = MANAGEMENT
    command: Callable[[JsonObject], str] | None = None  # The equivalent command line.

    def route(self) -> Route:
        """Return the route of the page."""
        return Route(
            method="GET",
            path=self.path,
            handler=self.show,
            summary=f"{self.kind}.",
            tag=self.tag,
            query=QUERY,
            page=True,
        )

    async def show(self, call: HttpCall) -> Text:
        """Return the page, or one of its tables as a file."""
        row = await self.show_object(call)
        name = self.name(row)
        if file := await export_table(call, self.kind, self.tables, row):
            return file
        links = [] if self.links is None else self.links(call, row)
        return page(
            call,
            "detail.html",
            f"{self.kind} {name}",
            detail=self,
            name=name,
            facts=[(fact, fact.value(row)) for fact in self.facts],
            tables=await table_views(call, self.tables, row),
            actions=links_for(call, links),
            charts=() if self.charts is None else self.charts(row),
            command="" if self.command is None else self.command(row),
        )
