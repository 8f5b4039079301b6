# SPDX-License-Identifier: Apache-2.0
"""The table of all routes of the API, joined from the modules of the resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import (
    audit_log,
    backups,
    browse,
    clients,
    compatibility,
    dead_letters,
    deduplication,
    definitions,
    events,
    exchanges,
    groups,
    health,
    jobs,
    leases,
    login,
    login_attempts,
    logs,
    messages,
    nodes,
    openapi,
    overview,
    pipelines,
    policies,
    queues,
    settings,
    staged_batches,
    streams,
    topology,
    transactions,
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
            policies.ROUTES,
            definitions.ROUTES,
            health.ROUTES,
            compatibility.LIST_ROUTES,
            login_attempts.ROUTES,
            settings.RABBITMQS_ROUTES,
            compatibility.ROUTES,
        ),
        *login.ROUTES,
        *writes(
            queues.ROUTES,
            exchanges.ROUTES,
            messages.ROUTES,
            users.ROUTES,
            vhosts.ROUTES,
            policies.ROUTES,
            nodes.ROUTES,
            compatibility.LIST_ROUTES,
            login_attempts.ROUTES,
            clients.ROUTES,
            definitions.ROUTES,
        ),
        *browse.ROUTES,
        *jobs.ROUTES,
        *events.ROUTES,
        *dead_letters.ROUTES,
        *topology.ROUTES,
        *reads(
            leases.ROUTES,
            groups.ROUTES,
            transactions.ROUTES,
            staged_batches.ROUTES,
            deduplication.ROUTES,
            transactions.ROUTES_OF_VHOST,
            settings.ROUTES,
            logs.ROUTES,
        ),
        *writes(transactions.ROUTES, leases.ROUTES, groups.ROUTES),
        *audit_log.ROUTES,
        *backups.ROUTES,
        *streams.ROUTES,
        *pipelines.ROUTES,
    )
)


def manual() -> str:
    """Return the text of docs/reference/management-api.md."""
    return page_of(ROUTES, openapi.DIFFERENCES, openapi.NOT_SERVED)
