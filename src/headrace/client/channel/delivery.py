# SPDX-License-Identifier: Apache-2.0
"""A received message, and what it needs of the channel that delivered it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from headrace.client.errors import ClientError
from headrace.client.message import Received, decode_properties, message_fields
from headrace.protocol.codec_0_x import BasicDeliver, BasicGetOk

if TYPE_CHECKING:
    from headrace.client.channel.outgoing import Publication
    from headrace.client.link.backpressure import Backpressure


class Outbox(Protocol):
    """Methods that threads send on a channel, in the program's order."""

    def take(self, outgoing: Publication | Settlement) -> None:
        """Send an item now, or queue it after earlier ones."""

    async def drain(self) -> None:
        """Wait until everything taken so far is sent."""


class ChannelPort(Protocol):
    """The members of a channel that deliveries and consumers use."""

    kind: type[Delivery]  # The class of deliveries.
    outbox: Outbox | None  # Only programs without asyncio have one.
    backpressure: Backpressure

    def is_current(self, epoch: int) -> bool:
        """Return True if deliveries of that opening of the channel can still be settled."""

    def must_wait(self) -> bool:
        """Return True while the broker does not read as fast as this channel writes."""

    async def can_write(self) -> None:
        """Wait until the broker reads again."""

    async def settle(self, delivery: Delivery, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        """Ack or refuse a delivery; return False when its connection is lost."""

    def settle_soon(self, delivery: Delivery, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        """Ack or refuse a delivery without waiting for a broker that does not read."""

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Requeue deliveries that were not handed to the program."""

    def give_back(self, delivery: Delivered) -> None:
        """Requeue a delivery that the program has in hand, unless it is settled."""


# Keeps 0-9-1/s005, 0-9/redelivered#hinting.
@dataclass(slots=True, eq=False, repr=False)
class Delivered(Received):
    """A received message, with the opening of the channel that delivered it."""

    channel: ChannelPort = field(kw_only=True, repr=False)
    epoch: int = field(kw_only=True, repr=False)  # The opening of the channel.
    settled: bool = field(default=False, kw_only=True)  # Or consumed with `no_ack`.

    def is_current(self) -> bool:
        """Return True if the delivery can still be settled; else it is redelivered."""
        return self.channel.is_current(self.epoch)


@dataclass(slots=True, eq=False, repr=False)
class Delivery(Delivered):
    """A received message. Settle it with `ack`, `nack` or `reject`, unless consumed with `no_ack`.

    Each returns False when the connection of the delivery is lost: the broker delivers the message
    again. A second settlement raises UsageError.
    """

    async def ack(self, *, multiple: bool = False) -> bool:
        """Ack the message; with `multiple`, also all earlier deliveries of this channel."""
        channel = self.channel
        sent = channel.settle_soon(self, ack=True, multiple=multiple, requeue=False)
        if channel.must_wait():
            await channel.can_write()
        return sent

    async def nack(self, *, requeue: bool = True, multiple: bool = False) -> bool:
        """Refuse the message: requeue it, or without `requeue` dead-letter or drop it."""
        return await self.channel.settle(self, ack=False, multiple=multiple, requeue=requeue)

    # Keeps 0-9-1/basic.reject#03, 0-9/basic.reject#03.
    async def reject(self, *, requeue: bool = False) -> bool:
        """Refuse the message for good: dead-letter or drop it, or with `requeue` requeue it."""
        return await self.channel.settle(self, ack=False, multiple=False, requeue=requeue)

    @asynccontextmanager
    async def process(self, *, requeue: bool = False) -> AsyncIterator[Self]:
        """Ack at the end of the block; reject when an error leaves it, and raise that.

        Cancellation and KeyboardInterrupt say nothing about the message: it is requeued.
        """
        try:
            yield self
        except Exception:
            if not self.settled:
                with suppress(ClientError):  # The error of the block is the one to raise.
                    await self.reject(requeue=requeue)
            raise
        except BaseException:
            self.channel.give_back(self)
            raise
        if not self.settled:
            await self.ack()


# A delivery, and ack, multiple, requeue.
Settlement = tuple[Delivered, bool, bool, bool]


def read_delivery(
    channel: ChannelPort,
    epoch: int,
    method: BasicDeliver | BasicGetOk,
    header: bytes,
    body: bytes,
    no_ack: bool,
) -> Delivery:
    """Return a delivery, of the class that the program uses, from its frames."""
    return channel.kind(
        body,
        exchange=method.exchange,
        routing_key=method.routing_key,
        redelivered=method.redelivered,
        delivery_tag=method.delivery_tag,
        consumer_tag=method.consumer_tag if isinstance(method, BasicDeliver) else "",
        message_count=method.message_count if isinstance(method, BasicGetOk) else 0,
        channel=channel,
        epoch=epoch,
        settled=no_ack,
        **message_fields(decode_properties(header)),
    )
