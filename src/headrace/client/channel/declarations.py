# SPDX-License-Identifier: Apache-2.0
"""The calls of a channel that declare, bind, purge and delete exchanges and queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.client.channel.channel_base import ChannelBase
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
QueueBinding = TypeVar("QueueBinding", QueueBind, QueueUnbind)
ExchangeBinding = TypeVar("ExchangeBinding", ExchangeBind, ExchangeUnbind)

DECLARED = (ExchangeDeclareOk, QueueDeclareOk, ExchangeBindOk, QueueBindOk)


@dataclass(frozen=True, slots=True)
class QueueState:
    """The broker's answer to a queue's declaration. `str` gives the name."""

    name: str
    message_count: int
    consumer_count: int

    def __str__(self) -> str:
        return self.name


class Declarations(ChannelBase):
    """Declares, binds, purges and deletes exchanges and queues.

    Every call waits for the broker's answer. It raises ChannelClosed, which closes the channel,
    when the broker refuses: NotFound, AccessRefused, PreconditionFailed (it exists with other
    properties) or ResourceLocked (an exclusive queue of another connection). A reconnection repeats
    the declarations and bindings that the connection has not deleted.
    """

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
        """Declare an exchange; with `passive`, only check that it exists.

        `kind` is its type (direct, fanout, topic, headers, or a type that the broker adds). An
        `internal` exchange takes no publishes, only messages of other exchanges.
        """
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
        """Delete an exchange; with `if_unused`, only if it has no bindings."""
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
        """Declare a queue; with `passive`, only check that it exists. The broker names a queue "".

        An `exclusive` queue belongs to this connection and is deleted with it. An `auto_delete`
        queue is deleted with its last consumer.
        """
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
        """Delete a queue; return the number of messages deleted with it.

        With `if_unused` only if it has no consumers, with `if_empty` only if it has no messages.
        """
        request = QueueDelete(queue=self._name(name), if_unused=if_unused, if_empty=if_empty)
        return (await self._change(request, QueueDeleteOk)).message_count

    async def purge_queue(self, name: str) -> int:
        """Delete the ready messages of a queue; return their number. Unacked messages stay."""
        return (await self._call(QueuePurge(queue=self._name(name)), QueuePurgeOk)).message_count

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Bind a queue to an exchange."""
        request = self._queue_binding(QueueBind, queue, exchange, routing_key, arguments)
        await self._change(request, QueueBindOk)

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Remove a binding; routing key and arguments must be those of the binding."""
        request = self._queue_binding(QueueUnbind, queue, exchange, routing_key, arguments)
        await self._change(request, QueueUnbindOk)

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Bind the exchange `destination` to the exchange `source`, which routes to it."""
        request = _exchange_binding(ExchangeBind, destination, source, routing_key, arguments)
        await self._change(request, ExchangeBindOk)

    async def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Remove a binding between exchanges."""
        request = _exchange_binding(ExchangeUnbind, destination, source, routing_key, arguments)
        await self._change(request, ExchangeUnbindOk)

    # Keeps 0-9-1/s046, 0-9-1/s082.
    async def _change(self, request: MethodBase, reply: type[Reply]) -> Reply:
        """Send a request that changes the topology, and record it once the broker has answered.

        A reconnection declares recorded queues and exchanges again, but not deleted ones.
        """
        answer = await self._call(request, reply)
        self.topology.record(request)
        return answer

    def _queue_binding(
        self,
        kind: type[QueueBinding],
        queue: str,
        exchange: str,
        routing_key: str,
        arguments: Arguments | None,
    ) -> QueueBinding:
        return kind(
            queue=self._name(queue),
            exchange=exchange,
            routing_key=routing_key,
            arguments=dict(arguments or {}),
        )

    def _name(self, queue: str) -> str:
        return self.topology.current_name(queue)


def _exchange_binding(
    kind: type[ExchangeBinding],
    destination: str,
    source: str,
    routing_key: str,
    arguments: Arguments | None,
) -> ExchangeBinding:
    return kind(
        destination=destination,
        source=source,
        routing_key=routing_key,
        arguments=dict(arguments or {}),
    )
