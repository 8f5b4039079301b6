# SPDX-License-Identifier: Apache-2.0
"""The table of all operations, joined from the modules of the areas."""

from headrace.server.management import (
    alarms,
    backups,
    clients,
    cluster,
    definitions,
    events,
    objects,
    peek,
    service,
    tracing,
)
from headrace.server.management.access import logins
from headrace.server.management.call import Operation
from headrace.server.management.reads import (
    audit_search,
    certificates,
    exactly_once,
    logs,
    routes,
    settings,
)
from headrace.server.management.sampling import operation as sampling
from headrace.server.management.writes import (
    accounts,
    jobs,
    messages,
    parameters,
    topology,
    transactions,
)

OPERATIONS: dict[str, Operation] = {
    **accounts.OPERATIONS,
    **alarms.OPERATIONS,
    **audit_search.OPERATIONS,
    **backups.OPERATIONS,
    **certificates.OPERATIONS,
    **clients.OPERATIONS,
    **cluster.OPERATIONS,
    **transactions.OPERATIONS,
    **definitions.OPERATIONS,
    **jobs.OPERATIONS,
    **events.OPERATIONS,
    **exactly_once.OPERATIONS,
    **logins.OPERATIONS,
    **logs.OPERATIONS,
    **messages.OPERATIONS,
    **objects.OPERATIONS,
    **parameters.OPERATIONS,
    **peek.OPERATIONS,
    **routes.OPERATIONS,
    **sampling.OPERATIONS,
    **service.OPERATIONS,
    **settings.OPERATIONS,
    **topology.OPERATIONS,
    **tracing.OPERATIONS,
}
