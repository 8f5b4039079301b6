# SPDX-License-Identifier: Apache-2.0
"""The table of all pages."""

from headrace.console.http.routes import Route
from headrace.console.pages import assets, login, oauth
from headrace.console.pages.messages import browse, dead_letters, jobs
from headrace.console.pages.objects import (
    charts,
    clients,
    definitions,
    exchanges,
    groups,
    leases,
    logs,
    overview,
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
from headrace.console.pages.pipelines import pages as pipelines

LISTS = (
    *queues.LISTS,
    *streams.LISTS,
    *exchanges.LISTS,
    *clients.LISTS,
    *policies.LISTS,
    *vhosts.LISTS,
    *users.LISTS,
    *leases.LISTS,
    *groups.LISTS,
    *transactions.LISTS,
    *staged_batches.LISTS,
    *settings.LISTS,
    *logs.LISTS,
    *jobs.LISTS,
    *pipelines.LISTS,
)
PAGES = (
    *queues.PAGES,
    *streams.PAGES,
    *exchanges.PAGES,
    *clients.PAGES,
    *vhosts.PAGES,
    *users.PAGES,
)
ACTIONS = (
    *queues.ACTIONS,
    *exchanges.ACTIONS,
    *clients.ACTIONS,
    *policies.ACTIONS,
    *vhosts.ACTIONS,
    *users.ACTIONS,
    *definitions.ACTIONS,
    *transactions.ACTIONS,
    *jobs.ACTIONS,
)
ROUTES: tuple[Route, ...] = (
    *assets.ROUTES,
    *login.ROUTES,
    *oauth.ROUTES,
    *overview.ROUTES,
    *charts.ROUTES,
    *topology.ROUTES,
    *browse.ROUTES,
    *jobs.ROUTES,
    *dead_letters.ROUTES,
    *pipelines.ROUTES,
    *(one.route() for one in LISTS),
    *(one.route() for one in PAGES),
    *(route for one in ACTIONS for route in one.routes()),
)
