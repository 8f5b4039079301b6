# SPDX-License-Identifier: Apache-2.0
"""Links to actions and related pages. A user sees only links that the user's tags allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.http.routes import suffices
from headrace.console.pages.texts import segment
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

Tags = tuple[str, ...]
Charts = tuple[tuple[str, str], ...]  # The address of the series of each chart, and its title.
RowAddress = Callable[["JsonObject"], str]  # Returns the address of a row's page; "" for none.


@dataclass(frozen=True, slots=True)
class Link:
    """A link to an action or a related page, for users with a tag."""

    title: str
    address: str
    tag: str = MANAGEMENT
    danger: bool = False
    is_for_viewers: bool = False  # It leads to a page without forms and messages.

    def is_for(self, tags: Tags) -> bool:
        """Return True if a user with these tags may follow the link."""
        return suffices(tags, self.tag, without_viewers=not self.is_for_viewers)


@dataclass(frozen=True, slots=True)
class FormAddress:
    """The address of a row's page where that page is a form, for users with a tag."""

    address: RowAddress
    tag: str = MANAGEMENT

    def __call__(self, row: JsonObject) -> str:
        """Return the address of a row's page."""
        return self.address(row)

    def is_for(self, tags: Tags) -> bool:
        """Return True if a user with these tags may send the form."""
        return suffices(tags, self.tag, without_viewers=True)


def path_to(*names: object) -> str:
    """Return the path of a page, such as ``/queues/%2F/orders`` for "queues", "/" and "orders"."""
    return "".join(f"/{segment(name)}" for name in names)


def links_for(call: HttpCall, links: list[Link] | tuple[Link, ...]) -> list[Link]:
    """Return the links that the user of a request may follow."""
    return [link for link in links if link.is_for(call.identity.tags)]


def address_for(call: HttpCall, address: RowAddress | None, row: JsonObject) -> str:
    """Return the address of a row's page; empty if it has none, or the user may not open it."""
    if address is None or (
        isinstance(address, FormAddress) and not address.is_for(call.identity.tags)
    ):
        return ""
    return address(row)
