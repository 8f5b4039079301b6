# SPDX-License-Identifier: Apache-2.0
"""The table of all routes of the API, joined from the modules of the areas."""

from headrace.console.api import (
    clients,
    definitions,
    exchanges,
    health,
    nodes,
    others,
    overview,
    queues,
    rules,
    users,
    vhosts,
)
from headrace.console.http.routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *nodes.ROUTES,
    *vhosts.ROUTES,
    *queues.ROUTES,
    *exchanges.ROUTES,
    *clients.ROUTES,
    *users.ROUTES,
    *rules.ROUTES,
    *definitions.ROUTES,
    *health.ROUTES,
    *others.ROUTES,
)
