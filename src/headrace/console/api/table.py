# SPDX-License-Identifier: Apache-2.0
"""The table of all routes of the API, joined from the modules of the resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import login, openapi, queues
from headrace.console.api.own import (
    backups,
    browse,
    dead_letters,
    events,
    jobs,
    pipelines,
    records,
    streams,
    topology,
)
from headrace.console.api.reads import (
    clients,
    definitions,
    exchanges,
    health,
    nodes,
    others,
    overview,
    rules,
    users,
    vhosts,
)
from headrace.console.api.writes import clients as closing
from headrace.console.api.writes import definitions as imports
from headrace.console.api.writes import exchanges as exchange_writes
from headrace.console.api.writes import messages
from headrace.console.api.writes import rules as rule_writes
from headrace.console.api.writes import users as user_writes
from headrace.console.api.writes import vhosts as vhost_writes
from headrace.console.http.openapi import manual as page_of
from headrace.console.http.routes import SAFE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.console.http.routes import Route


def reads(routes: Iterable[Route]) -> Iterator[Route]:
    """Return the routes of a resource that change nothing."""
    return (route for route in routes if route.method in SAFE)


def writes(routes: Iterable[Route]) -> Iterator[Route]:
    """Return the routes of a resource that change something."""
    return (route for route in routes if route.method not in SAFE)


#: In the order of the documentation: what is read, and then what is written.
ROUTES: tuple[Route, ...] = openapi.with_document(
    (
        *overview.ROUTES,
        *nodes.ROUTES,
        *vhosts.ROUTES,
        *reads(queues.ROUTES),
        *exchanges.ROUTES,
        *clients.ROUTES,
        *users.ROUTES,
        *rules.ROUTES,
        *definitions.ROUTES,
        *health.ROUTES,
        *others.ROUTES,
        *login.ROUTES,
        *writes(queues.ROUTES),
        *exchange_writes.ROUTES,
        *messages.ROUTES,
        *user_writes.ROUTES,
        *vhost_writes.ROUTES,
        *rule_writes.ROUTES,
        *closing.ROUTES,
        *imports.ROUTES,
        *browse.ROUTES,
        *jobs.ROUTES,
        *events.ROUTES,
        *dead_letters.ROUTES,
        *topology.ROUTES,
        *records.ROUTES,
        *backups.ROUTES,
        *streams.ROUTES,
        *pipelines.ROUTES,
    )
)


def manual() -> str:
    """Return the text of docs/reference/management-api.md."""
    return page_of(ROUTES, openapi.DIFFERENCES, openapi.NOT_SERVED)
