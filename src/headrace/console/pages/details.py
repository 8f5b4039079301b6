# SPDX-License-Identifier: Apache-2.0
"""Pages of one object: its facts, what belongs to it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.http.routes import Route
from headrace.console.pages.parts import QUERY, Part, file_of_part, tables_of
from headrace.console.pages.rendering import page
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.listings import Column, Link
    from headrace.untyped import JsonObject

Charts = tuple[tuple[str, str], ...]  # The address of each one's numbers, and its title.


@dataclass(frozen=True, slots=True)
class DetailPage:
    """A page that shows one object."""

    path: str
    kind: str  # What it is, such as "Queue".
    parent: tuple[str, str]  # Title and address of the list it is in.
    show_object: Callable[[HttpCall], Awaitable[JsonObject]]
    name: Callable[[JsonObject], str]
    facts: tuple[Column, ...]
    parts: tuple[Part, ...] = ()
    actions: Callable[[HttpCall, JsonObject], list[Link]] | None = None
    charts: Callable[[JsonObject], Charts] | None = None
    about: str = ""
    tag: str = MANAGEMENT
    command: Callable[[JsonObject], str] | None = None

    def route(self) -> Route:
        """Return the route of the page."""
        return Route("GET", self.path, self.show, self.tag, "", f"{self.kind}.", QUERY, page=True)

    async def show(self, call: HttpCall) -> object:
        """Return the page."""
        found = await self.show_object(call)
        name = self.name(found)
        file = await file_of_part(call, self.kind, self.parts, found)
        if file is not None:
            return file
        links = [] if self.actions is None else self.actions(call, found)
        return page(
            call,
            "detail.html",
            f"{self.kind} {name}",
            detail=self,
            name=name,
            facts=[(fact, fact.value(found)) for fact in self.facts],
            tables=await tables_of(call, self.parts, found),
            path=call.request.rel_url.raw_path,
            actions=[one for one in links if one.is_for(call.identity.tags)],
            charts=() if self.charts is None else self.charts(found),
            command="" if self.command is None else self.command(found),
        )
