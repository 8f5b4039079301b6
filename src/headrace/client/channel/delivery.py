# SPDX-License-Identifier: Apache-2.0
"""A received message with its settlement, and the protocol of the channel that it uses."""

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
    """The queue of publishes and settlements that threads send on a channel, in order."""

    def submit(self, item: Publication | Settlement) -> None:
        """Send an item now, or queue it after earlier ones."""

    async def drain(self) -> None:
        """Wait until all items submitted so far are sent."""


class ChannelPort(Protocol):
    """The members of a channel that deliveries and consumers use."""

    delivery_class: type[Delivery]  # The class of deliveries.
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

    def give_back(self, delivery: DeliveryBase) -> None:
        """Requeue a delivery that the program has in hand, unless it is settled."""


@dataclass(slots=True, eq=False, repr=False)
class DeliveryBase(Received):
    """The base of deliveries: a received message and the channel that delivered it."""

    channel: ChannelPort = field(kw_only=True, repr=False)
    epoch: int = field(kw_only=True, repr=False)  # The number of the channel's opening.
    settled: bool = field(default=False, kw_only=True)  # True from the start with `no_ack`.

    def is_current(self) -> bool:
        """Return True if the delivery can still be settled; else it is redelivered."""
        return self.channel.is_current(self.epoch)


@dataclass(slots=True, eq=False, repr=False)
class Delivery(DeliveryBase):
    """A received message. Settle it with `ack`, `nack` or `reject`, unless consumed with `no_ack`.

    A settlement returns False when the connection of the delivery is lost; the broker redelivers
    the message. A second settlement raises UsageError.
    """

    async def ack(self, *, multiple: bool = False) -> bool:
        """Ack the message; with `multiple`, also all earlier deliveries of this channel."""
        channel = self.channel
        is_sent = channel.settle_soon(self, ack=True, multiple=multiple, requeue=False)
        if channel.must_wait():
            await channel.can_write()
        return is_sent

    async def nack(self, *, requeue: bool = True, multiple: bool = False) -> bool:
        """Refuse the message: requeue it, or without `requeue` dead-letter or drop it."""
        return await self.channel.settle(self, ack=False, multiple=multiple, requeue=requeue)

    async def reject(self, *, requeue: bool = False) -> bool:
        """Refuse the message for good: dead-letter or drop it, or with `requeue` requeue it."""
        return await self.channel.settle(self, ack=False, multiple=False, requeue=requeue)

    @asynccontextmanager
    async def process(self, *, requeue: bool = False) -> AsyncIterator[Self]:
        """Ack at the end of the block; reject when the block raises an Exception.

        The error of the block is raised. Cancellation and KeyboardInterrupt are not caused by the
        message, so they requeue it.
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


# The delivery, and the flags ack, multiple and requeue.
Settlement = tuple[DeliveryBase, bool, bool, bool]


def read_delivery(
    channel: ChannelPort,
    epoch: int,
    method: BasicDeliver | BasicGetOk,
    header: bytes,
    body: bytes,
    no_ack: bool,
) -> Delivery:
    """Return a delivery, of the class that the program uses, from its frames."""
    return channel.delivery_class(
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
