# SPDX-License-Identifier: Apache-2.0
"""The table of all routes of the API, joined from the modules of the resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import (
    backups,
    browse,
    clients,
    dead_letters,
    definitions,
    events,
    exchanges,
    health,
    jobs,
    login,
    messages,
    nodes,
    openapi,
    others,
    overview,
    pipelines,
    queues,
    records,
    rules,
    streams,
    topology,
    users,
    vhosts,
)
from headrace.console.http.openapi import manual as page_of
from headrace.console.http.routes import SAFE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.console.http.routes import Route


def reads(*tables: Iterable[Route]) -> Iterator[Route]:
    """Return the routes of resources that change nothing."""
    return (route for routes in tables for route in routes if route.method in SAFE)


def writes(*tables: Iterable[Route]) -> Iterator[Route]:
    """Return the routes of resources that change something."""
    return (route for routes in tables for route in routes if route.method not in SAFE)


#: In the order of the documentation: what RabbitMQ has is first read and then written.
ROUTES: tuple[Route, ...] = openapi.with_document(
    (
        *reads(
            overview.ROUTES,
            nodes.ROUTES,
            vhosts.ROUTES,
            queues.ROUTES,
            exchanges.ROUTES,
            clients.ROUTES,
            users.ROUTES,
            rules.ROUTES,
            definitions.ROUTES,
            health.ROUTES,
            others.ROUTES,
        ),
        *login.ROUTES,
        *writes(
            queues.ROUTES,
            exchanges.ROUTES,
            messages.ROUTES,
            users.ROUTES,
            vhosts.ROUTES,
            rules.ROUTES,
            nodes.ROUTES,
            others.ROUTES,
            clients.ROUTES,
            definitions.ROUTES,
        ),
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
