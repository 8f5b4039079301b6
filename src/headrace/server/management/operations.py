# SPDX-License-Identifier: Apache-2.0
"""The table of all operations, joined from the modules of the areas."""

from headrace.server.management import (
    alarms,
    backups,
    clients,
    definitions,
    objects,
    peek,
    service,
    tracing,
)
from headrace.server.management.call import Operation

OPERATIONS: dict[str, Operation] = {
    **alarms.OPERATIONS,
    **backups.OPERATIONS,
    **clients.OPERATIONS,
    **definitions.OPERATIONS,
    **objects.OPERATIONS,
    **peek.OPERATIONS,
    **service.OPERATIONS,
    **tracing.OPERATIONS,
}
