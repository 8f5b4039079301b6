# SPDX-License-Identifier: Apache-2.0
"""The table of all operations, joined from the modules of the resources."""

from headrace.server.management import definitions, objects, peek, service
from headrace.server.management.call import Operation
from headrace.server.management.operation_table import OperationRow
from headrace.server.management.reads import exactly_once
from headrace.server.management.resources import (
    alarms,
    audit_log,
    backups,
    certificates,
    channels,
    cluster,
    connections,
    consumers,
    events,
    logins,
    logs,
    settings,
    topology,
    tracing,
)
from headrace.server.management.sampling import operation as sampling
from headrace.server.management.writes import accounts, jobs, messages, parameters, transactions
from headrace.server.management.writes import topology as declarations

RESOURCES = (
    logins,
    service,
    objects,
    declarations,
    topology,
    connections,
    channels,
    consumers,
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
    audit_log,
)
ROWS: dict[str, OperationRow] = {
    row.name: row for resource in RESOURCES for row in resource.operation.rows
}
OPERATIONS: dict[str, Operation] = {name: row.run for name, row in ROWS.items()}
