# SPDX-License-Identifier: Apache-2.0
"""The queue ``amq.headrace.pipeline``: requests of pipelines, in addition to the methods of AMQP.

Each area has a module with a table of its requests, ``HANDLERS``;
docs/reference/pipeline-service.md documents them. Users need permissions on the names in a
request, none on this queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.requests import (
    gaps,
    groups,
    leases,
    messages,
    publishers,
    staged,
    streams,
    super_streams,
)
from headrace.gateway.requests.requests import Handler, RequestService

if TYPE_CHECKING:
    from headrace.gateway.connection.context import Context
    from headrace.model.vhost.virtual_host import VirtualHost

QUEUE = "amq.headrace.pipeline"
REQUEST_BYTES_MAX = 1 << 20

HANDLERS: dict[str, Handler] = {
    **groups.HANDLERS,
    **streams.HANDLERS,
    **gaps.HANDLERS,
    **leases.HANDLERS,
    **messages.HANDLERS,
    **super_streams.HANDLERS,
    **publishers.HANDLERS,
    **staged.HANDLERS,
}


class Pipeline(RequestService):
    """Serves the requests of one virtual host."""

    def __init__(self, context: Context, vhost: VirtualHost) -> None:
        RequestService.__init__(self, context, vhost, QUEUE, HANDLERS, bytes_max=REQUEST_BYTES_MAX)
        vhost.leases.ownerships.is_open = context.connections.__contains__
        vhost.jobs.is_open = context.connections.__contains__
