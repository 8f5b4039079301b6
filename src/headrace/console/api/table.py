# SPDX-License-Identifier: Apache-2.0
"""The table of all routes of the API, joined from the modules of the areas."""

from headrace.console.api import overview, queues, users
from headrace.console.http.routes import Route

ROUTES: tuple[Route, ...] = (
    *overview.ROUTES,
    *queues.ROUTES,
    *users.ROUTES,
)
