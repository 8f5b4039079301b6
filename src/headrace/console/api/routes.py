# SPDX-License-Identifier: Apache-2.0
"""All routes of the API, resource by resource: RabbitMQ's paths first, then our own.

The reference page and the OpenAPI document list them in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import (
    audit_log,
    backups,
    bindings,
    browse,
    channels,
    compatibility,
    connections,
    consumers,
    dead_letters,
    deduplication,
    definitions,
    events,
    exchanges,
    groups,
    health,
    jobs,
    leases,
    limits,
    login,
    login_attempts,
    logs,
    messages,
    nodes,
    openapi,
    overview,
    parameters,
    permissions,
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

if TYPE_CHECKING:
    from headrace.console.http.routes import Route

RABBITMQS = (
    *overview.ROUTES,
    *nodes.ROUTES,
    *vhosts.ROUTES,
    *queues.ROUTES,
    *exchanges.ROUTES,
    *bindings.ROUTES,
    *messages.ROUTES,
    *connections.ROUTES,
    *channels.ROUTES,
    *consumers.ROUTES,
    *users.ROUTES,
    *permissions.ROUTES,
    *policies.ROUTES,
    *limits.ROUTES,
    *parameters.ROUTES,
    *definitions.ROUTES,
    *health.ROUTES,
    *login.ROUTES,
    *login_attempts.ROUTES,
    *settings.RABBITMQS_ROUTES,
    *compatibility.ROUTES,
)
OWN = (
    *browse.ROUTES,
    *jobs.ROUTES,
    *dead_letters.ROUTES,
    *topology.ROUTES,
    *streams.ROUTES,
    *groups.ROUTES,
    *leases.ROUTES,
    *transactions.ROUTES,
    *staged_batches.ROUTES,
    *deduplication.ROUTES,
    *pipelines.ROUTES,
    *events.ROUTES,
    *settings.ROUTES,
    *logs.ROUTES,
    *audit_log.ROUTES,
    *backups.ROUTES,
)
ROUTES: tuple[Route, ...] = openapi.add_document_routes((*RABBITMQS, *OWN))
