# SPDX-License-Identifier: Apache-2.0
"""The table of all operations: each area has a module of its own."""

from headrace.server.management import (
    alarms,
    backups,
    clients,
    definitions,
    looking,
    objects,
    service,
    tracing,
)
from headrace.server.management.call import Operation

OPERATIONS: dict[str, Operation] = {
    **alarms.OPERATIONS,
    **backups.OPERATIONS,
    **clients.OPERATIONS,
    **definitions.OPERATIONS,
    **looking.OPERATIONS,
    **objects.OPERATIONS,
    **service.OPERATIONS,
    **tracing.OPERATIONS,
}
