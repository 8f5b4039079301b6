# SPDX-License-Identifier: Apache-2.0
"""The table of all operations, joined from the modules of the resources."""

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
from headrace.server.management.operation_table import OperationRow
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

RESOURCES = (
    logins,
    service,
    objects,
    topology,
    routes,
    clients,
    peek,
    messages,
    jobs,
    transactions,
    exactly_once,
    accounts,
    parameters,
    definitions,
    backups,
    alarms,
    certificates,
    cluster,
    events,
    sampling,
    tracing,
    settings,
    logs,
    audit_search,
)
ROWS: dict[str, OperationRow] = {
    row.name: row for resource in RESOURCES for row in resource.operation.rows
}
OPERATIONS: dict[str, Operation] = {name: row.run for name, row in ROWS.items()}
