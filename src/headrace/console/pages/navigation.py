# SPDX-License-Identifier: Apache-2.0
"""The menu: groups of pages. A user sees only the pages that the user's tags open."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.console.http.routes import ALLOWED
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """A page in the menu, with the tag of its route."""

    title: str
    path: str
    tag: str = MANAGEMENT


MENU: tuple[tuple[str, tuple[MenuEntry, ...]], ...] = (
    ("", (MenuEntry("Overview", "/"),)),
    (
        "Messages",
        (
            MenuEntry("Queues", "/queues"),
            MenuEntry("Streams", "/streams"),
            MenuEntry("Exchanges", "/exchanges"),
            MenuEntry("Bindings", "/bindings"),
            MenuEntry("Groups", "/groups"),
            MenuEntry("Leases", "/leases"),
            MenuEntry("Transactions", "/transactions"),
            MenuEntry("Staged batches", "/batches"),
            MenuEntry("Jobs", "/jobs"),
        ),
    ),
    (
        "Clients",
        (
            MenuEntry("Connections", "/connections"),
            MenuEntry("Channels", "/channels"),
            MenuEntry("Consumers", "/consumers"),
        ),
    ),
    (
        "Spark",
        (
            MenuEntry("Queries", "/queries", MONITORING),
            MenuEntry("Pipelines", "/pipelines", MONITORING),
        ),
    ),
    (
        "Rules",
        (
            MenuEntry("Policies", "/policies"),
            MenuEntry("Operator policies", "/operator-policies"),
            MenuEntry("Virtual host limits", "/vhost-limits"),
            MenuEntry("User limits", "/user-limits"),
        ),
    ),
    (
        "Access",
        (
            MenuEntry("Virtual hosts", "/vhosts"),
            MenuEntry("Users", "/users", ADMINISTRATOR),
            MenuEntry("Permissions", "/permissions", ADMINISTRATOR),
            MenuEntry("Topic permissions", "/topic-permissions", ADMINISTRATOR),
        ),
    ),
    (
        "Broker",
        (
            MenuEntry("Definitions", "/definitions", ADMINISTRATOR),
            MenuEntry("Settings", "/settings", ADMINISTRATOR),
            MenuEntry("Log", "/log", ADMINISTRATOR),
            MenuEntry("Audit log", "/audit", ADMINISTRATOR),
        ),
    ),
)


def menu_for(tags: tuple[str, ...]) -> list[tuple[str, list[MenuEntry]]]:
    """Return the groups of the menu, with the pages that a user with these tags may open."""
    menu = []
    for title, entries in MENU:
        allowed = [entry for entry in entries if not ALLOWED[entry.tag].isdisjoint(tags)]
        if allowed:
            menu.append((title, allowed))
    return menu
