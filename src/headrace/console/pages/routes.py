# SPDX-License-Identifier: Apache-2.0
"""All pages of the console, from the modules that declare them."""

from headrace.console.http.routes import Route
from headrace.console.pages import assets
from headrace.console.pages.charts import series
from headrace.console.pages.logins import oauth, password
from headrace.console.pages.messages import browse, dead_letters, jobs
from headrace.console.pages.objects import (
    bindings,
    channels,
    connections,
    consumers,
    definitions,
    exchanges,
    groups,
    leases,
    limits,
    logs,
    overview,
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

RESOURCES = (
    password.PAGES,
    oauth.PAGES,
    overview.PAGES,
    queues.PAGES,
    streams.PAGES,
    exchanges.PAGES,
    bindings.PAGES,
    connections.PAGES,
    channels.PAGES,
    consumers.PAGES,
    policies.PAGES,
    limits.PAGES,
    vhosts.PAGES,
    users.PAGES,
    permissions.PAGES,
    definitions.PAGES,
    transactions.PAGES,
    leases.PAGES,
    groups.PAGES,
    staged_batches.PAGES,
    settings.PAGES,
    logs.PAGES,
    topology.PAGES,
    browse.PAGES,
    jobs.PAGES,
    dead_letters.PAGES,
    pipelines.PAGES,
    series.PAGES,
)
ROUTES: tuple[Route, ...] = (
    *assets.ROUTES,
    *(route for pages in RESOURCES for route in pages),
)
