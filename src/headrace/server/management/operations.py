# SPDX-License-Identifier: Apache-2.0
"""The table of all operations, joined from the modules of the resources."""

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
    limits,
    logins,
    logs,
    maintenance,
    messages,
    parameters,
    permissions,
    policies,
    queues,
    settings,
    staged_batches,
    status,
    streams,
    topology,
    tracing,
    transactions,
    users,
    vhosts,
)
from headrace.server.management.sampling import operation as sampling

# Resources within virtual hosts, which another broker of a cluster may serve. Connections, channels
# and consumers are not among them, because their numbers are unique within their broker only.
VHOST_RESOURCES = (
    vhosts,
    queues,
    streams,
    exchanges,
    bindings,
    topology,
    messages,
    jobs,
    transactions,
    leases,
    groups,
    staged_batches,
    deduplication,
    policies,
    parameters,
    definitions,
    tracing,
)
RESOURCES = (
    logins,
    *VHOST_RESOURCES,
    connections,
    channels,
    consumers,
    users,
    permissions,
    limits,
    backups,
    status,
    maintenance,
    settings,
    logs,
    audit_log,
    alarms,
    events,
    sampling,
    certificates,
    cluster,
)
OPERATIONS: dict[str, OperationRow] = {
    row.name: row for resource in RESOURCES for row in resource.operation.rows
}
SAMPLES: dict[str, OperationRow] = {row.name: row for row in sampling.operation.rows}
FORWARDED: dict[str, OperationRow] = SAMPLES | {
    row.name: row for resource in VHOST_RESOURCES for row in resource.operation.rows
}
# Lists that include the objects of other brokers if the request has the flag ``everywhere``.
SHARED_LISTS = frozenset(name for name in FORWARDED if name.startswith("list "))
