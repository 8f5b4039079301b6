# SPDX-License-Identifier: Apache-2.0
"""The table of all operations, joined from the modules of the resources."""

from headrace.server.management.call import Operation
from headrace.server.management.operation_table import OperationRow
from headrace.server.management.resources import (
    alarms,
    audit_log,
    backups,
    bindings,
    certificates,
    channels,
    cluster,
    connections,
    consumers,
    deduplication,
    definitions,
    events,
    exchanges,
    groups,
    jobs,
    leases,
    logins,
    logs,
    messages,
    parameters,
    peek,
    permissions,
    queues,
    settings,
    status,
    streams,
    topology,
    tracing,
    transactions,
    users,
    vhosts,
)
from headrace.server.management.sampling import operation as sampling

RESOURCES = (
    logins,
    status,
    queues,
    streams,
    exchanges,
    bindings,
    topology,
    peek,
    messages,
    jobs,
    transactions,
    leases,
    groups,
    deduplication,
    connections,
    channels,
    consumers,
    vhosts,
    users,
    permissions,
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
    audit_log,
)
ROWS: dict[str, OperationRow] = {
    row.name: row for resource in RESOURCES for row in resource.operation.rows
}
OPERATIONS: dict[str, Operation] = {name: row.run for name, row in ROWS.items()}
