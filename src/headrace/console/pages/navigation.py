# SPDX-License-Identifier: Apache-2.0
"""The menu: groups of pages; a user sees the pages that their tags open."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.console.http.routes import ALLOWED
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of the menu."""

    title: str
    path: str
    tag: str = MANAGEMENT


MENU: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    ("", (Entry("Overview", "/"),)),
    (
        "Messages",
        (
            Entry("Queues", "/queues"),
            Entry("Streams", "/streams"),
            Entry("Exchanges", "/exchanges"),
            Entry("Bindings", "/bindings"),
            Entry("Groups", "/groups"),
            Entry("Leases", "/leases"),
            Entry("Transactions", "/transactions"),
            Entry("Staged batches", "/batches"),
            Entry("Jobs", "/jobs"),
        ),
    ),
    (
        "Clients",
        (
            Entry("Connections", "/connections"),
            Entry("Channels", "/channels"),
            Entry("Consumers", "/consumers"),
        ),
    ),
    (
        "Spark",
        (
            Entry("Queries", "/queries", MONITORING),
            Entry("Pipelines", "/pipelines", MONITORING),
        ),
    ),
    (
        "Rules",
        (
            Entry("Policies", "/policies"),
            Entry("Operator policies", "/operator-policies"),
            Entry("Virtual host limits", "/vhost-limits"),
            Entry("User limits", "/user-limits"),
        ),
    ),
    (
        "Access",
        (
            Entry("Virtual hosts", "/vhosts"),
            Entry("Users", "/users", ADMINISTRATOR),
            Entry("Permissions", "/permissions", ADMINISTRATOR),
            Entry("Topic permissions", "/topic-permissions", ADMINISTRATOR),
        ),
    ),
    (
        "Broker",
        (
            Entry("Definitions", "/definitions", ADMINISTRATOR),
            Entry("Settings", "/settings", ADMINISTRATOR),
            Entry("Log", "/log", ADMINISTRATOR),
            Entry("Audit log", "/audit", ADMINISTRATOR),
        ),
    ),
)


def menu_for(tags: tuple[str, ...]) -> list[tuple[str, list[Entry]]]:
    """Return the groups that a user with these tags may open."""
    menu = []
    for title, entries in MENU:
        allowed = [entry for entry in entries if not ALLOWED[entry.tag].isdisjoint(tags)]
        if allowed:
            menu.append((title, allowed))
    return menu
