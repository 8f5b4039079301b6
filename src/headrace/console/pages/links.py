# SPDX-License-Identifier: Apache-2.0
"""Links of pages to actions and related pages; users see those that they may follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.http.routes import suffices
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

Tags = tuple[str, ...]
RowAddress = Callable[["JsonObject"], str]  # The address of a row's page; "" for none.


@dataclass(frozen=True, slots=True)
class Link:
    """A link to an action or a related page, for users with a tag."""

    title: str
    address: str
    tag: str = MANAGEMENT
    danger: bool = False
    changes: bool = True

    def is_for(self, tags: Tags) -> bool:
        """Return True if a user with these tags may follow it; viewers change nothing."""
        return suffices(tags, self.tag, without_viewers=self.changes)


@dataclass(frozen=True, slots=True)
class FormAddress:
    """The address of a row's page where that page is a form, for users with a tag."""

    address: RowAddress
    tag: str = MANAGEMENT

    def __call__(self, row: JsonObject) -> str:
        """Return the address."""
        return self.address(row)

    def is_for(self, tags: Tags) -> bool:
        """Return True if a user with these tags may send the form."""
        return suffices(tags, self.tag, without_viewers=True)


def links_for(call: HttpCall, links: list[Link] | tuple[Link, ...]) -> list[Link]:
    """Return the links that the user of a request may follow."""
    return [link for link in links if link.is_for(call.identity.tags)]


def address_for(call: HttpCall, address: RowAddress | None, row: JsonObject) -> str:
    """Return the address of a row's page; empty if there is none, or not for the user."""
    if address is None or (
        isinstance(address, FormAddress) and not address.is_for(call.identity.tags)
    ):
        return ""
    return address(row)
