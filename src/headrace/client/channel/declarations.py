# SPDX-License-Identifier: Apache-2.0
"""Declaring, binding, purging and deleting: the part of a channel that makes the topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.channel.reconnecting import Linked
from headrace.protocol.codec_0_x import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from headrace.wire.table import Value

if TYPE_CHECKING:
    from headrace.client.channel.pending_calls import Reply

Arguments = Mapping[str, Value]

DECLARED = (ExchangeDeclareOk, QueueDeclareOk, ExchangeBindOk, QueueBindOk)


@dataclass(frozen=True, slots=True)
class QueueState:
    """What the broker says about a queue when it is declared."""

    name: str
    message_count: int
    consumer_count: int

    def __str__(self) -> str:
        return self.name


class Declarations(Linked):
    """What a channel can do to exchanges, queues and bindings."""

    async def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        """Make sure that the exchange exists, as described; `passive` only asks."""
        await self._change(
            ExchangeDeclare(
                exchange=name,
                type=kind,
                passive=passive,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=dict(arguments or {}),
            ),
            ExchangeDeclareOk,
        )

    async def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete the exchange."""
        await self._change(ExchangeDelete(exchange=name, if_unused=if_unused), ExchangeDeleteOk)

    async def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> QueueState:
        """Make sure that the queue exists, as described; `passive` only asks; "" has one named."""
        request = QueueDeclare(
            queue=self._name(name),
            passive=passive,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=dict(arguments or {}),
        )
        reply = await self._call(request, QueueDeclareOk)
        self.topology.record(request, reply.queue)
        return QueueState(reply.queue, reply.message_count, reply.consumer_count)

    async def delete_queue(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete the queue; return how many messages went with it."""
        request = QueueDelete(queue=self._name(name), if_unused=if_unused, if_empty=if_empty)
        return (await self._change(request, QueueDeleteOk)).message_count

    async def purge_queue(self, name: str) -> int:
        """Drop the ready messages of the queue; return how many."""
        return (await self._call(QueuePurge(queue=self._name(name)), QueuePurgeOk)).message_count

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Have the exchange route to the queue."""
        await self._change(
            QueueBind(
                queue=self._name(queue),
                exchange=exchange,
                routing_key=routing_key,
                arguments=dict(arguments or {}),
            ),
            QueueBindOk,
        )

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Take a binding back."""
        await self._change(
            QueueUnbind(
                queue=self._name(queue),
                exchange=exchange,
                routing_key=routing_key,
                arguments=dict(arguments or {}),
            ),
            QueueUnbindOk,
        )

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Have the exchange `source` route to the exchange `destination`."""
        await self._change(
            ExchangeBind(
                destination=destination,
                source=source,
                routing_key=routing_key,
                arguments=dict(arguments or {}),
            ),
            ExchangeBindOk,
        )

    async def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Take a binding between exchanges back."""
        await self._change(
            ExchangeUnbind(
                destination=destination,
                source=source,
                routing_key=routing_key,
                arguments=dict(arguments or {}),
            ),
            ExchangeUnbindOk,
        )

    async def _change(self, request: MethodBase, reply: type[Reply]) -> Reply:
        """Send a request that changes the topology, and remember that once it is done."""
        answer = await self._call(request, reply)
        self.topology.record(request)
        return answer

    def _name(self, queue: str) -> str:
        return self.topology.name(queue)
