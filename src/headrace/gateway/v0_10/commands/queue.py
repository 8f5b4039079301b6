# SPDX-License-Identifier: Apache-2.0
"""The queue class of 0-10: declare, delete, purge, query.

`headrace.gateway.security.authorized_host` has the rules of 0-10 for declarations;
`headrace.model.vhost.queue_registry` declares and deletes queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.security.authorized_host import ALTERNATE
from headrace.gateway.v0_10.host import authorized_host, plain
from headrace.model.exchange.binding import QUEUE
from headrace.protocol.codec_0_10 import (
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
    QueueQueryResult,
)

if TYPE_CHECKING:
    from headrace.gateway.v0_10.handlers import Handler
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.wire.types_0_10 import Map

COUNT_MAX = 0xFFFFFFFF


# Keeps 0-10/s182.
def declare(session: Session010, command: QueueDeclare, header: bytes, parts: object) -> None:
    """Declare a queue, or check that it exists."""
    name = command.queue or ""
    with authorized_host(session, command) as host:
        if command.passive:
            if name:
                host.check_any(QUEUE, name)
            host.find_queue(name)
            return
        host.declare_queue(
            name,
            durable=command.durable,
            exclusive=command.exclusive,
            auto_delete=command.auto_delete,
            arguments=plain(command.arguments or {}),
            alternate=command.alternate_exchange or "",
            kept=command.exclusive,
        )


def delete(session: Session010, command: QueueDelete, header: bytes, parts: object) -> None:
    """Delete a queue; its messages go to its alternate exchange."""
    with authorized_host(session, command) as host:
        host.delete_queue(
            command.queue or "", if_unused=command.if_unused, if_empty=command.if_empty
        )


def purge(session: Session010, command: QueuePurge, header: bytes, parts: object) -> bool:
    """Drop the ready messages of a queue; unacked messages stay with their subscribers."""
    with authorized_host(session, command) as host:
        host.purge_queue(command.queue or "")
    return session.complete_when_durable()


def query(session: Session010, command: QueueQuery, header: bytes, parts: object) -> bool:
    """Describe a queue; the description of a missing one is empty."""
    name = command.queue or ""
    if name:
        with authorized_host(session, command) as host:
            host.check_any(QUEUE, name)
    queue = session.vhost.queues.get(name)
    result = QueueQueryResult()
    if queue is not None:
        result = QueueQueryResult(
            queue=name,
            alternate_exchange=queue.alternate_exchange,
            durable=queue.durable,
            exclusive=queue.exclusive_owner is not None,
            auto_delete=queue.auto_delete,
            arguments=cast("Map", {k: v for k, v in queue.arguments.items() if k != ALTERNATE}),
            message_count=min(queue.message_count(), COUNT_MAX),
            subscriber_count=min(queue.consumer_count(), COUNT_MAX),
        )
    return session.send_result_in_order(result)


HANDLERS: dict[str, Handler] = {
    "queue.declare": declare,
    "queue.delete": delete,
    "queue.purge": purge,
    "queue.query": query,
}
