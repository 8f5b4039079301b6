# SPDX-License-Identifier: Apache-2.0
"""Channels of 0-9 that outlive a lost connection for a while: channel.resume.

``channel.open-ok`` assigns an id to every channel. When the connection is lost, without a close
from either side, its channels are kept: deliveries stay unsettled, transactions open, consumers
stop. Within a configured time, a connection of the same user to the same virtual host may resume
one with ``channel.resume`` in place of ``channel.open``; its consumers continue and delivery tags
stay valid. A channel that is not resumed in time is closed.

Exclusive queues belong to the connection, not the channel, and are deleted with it.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, NamedTuple

from headrace.gateway.connection.plug_in_state import ChannelState, channel_states, ensure_state
from headrace.gateway.v0_x.channel.consumer import BasicConsumer
from headrace.gateway.v0_x.connection.login import recheck
from headrace.gateway.v0_x.resumable_state import ResumableState
from headrace.model.errors import NotFound
from headrace.protocol.codec_0_x import ChannelOk, ChannelOpenOk
from headrace.spec.tables import V0_9

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler
    from headrace.protocol.codec_0_x import ChannelOpen, ChannelResume, MethodBase

log = logging.getLogger(__name__)

SUSPENDED_MAX = 4096  # The maximum suspended channels of one broker.
ID_BYTES = 16


class ResumeId(ChannelState):
    """The id under which a channel can be resumed; empty when it cannot."""

    value = b""


class SuspendedChannel(NamedTuple):
    """A channel that waits to be resumed."""

    channel: Channel
    connection: GatewayConnection  # The lost connection.


class SuspendedChannels:
    """The channels of one broker that wait to be resumed."""

    def __init__(self, keep_ms: Callable[[], int]) -> None:
        """Channels are kept for ``keep_ms()`` milliseconds; 0 keeps none."""
        self.keep_ms = keep_ms
        self.waiting: dict[bytes, SuspendedChannel] = {}

    def new_id(self) -> bytes:
        """Return an id that cannot be guessed."""
        return secrets.token_urlsafe(ID_BYTES).encode()

    def suspend(self, connection: GatewayConnection, channel: Channel) -> bool:
        """Keep a channel whose connection is lost; return True if it is kept."""
        channel_id = ensure_state(channel, ResumeId, ResumeId).value
        keep_ms = self.keep_ms()
        if not keep_ms or not channel_id or connection.speaks_extensions:
            return False  # Qpid's clients never resume: their messages are requeued at once.
        if len(self.waiting) >= SUSPENDED_MAX:
            return False
        channel.abandon()
        connection.drop_answers(channel)
        connection.drop_waiting(channel)
        channel.busy = 0
        for state in channel_states(channel):
            if isinstance(state, ResumableState):
                state.suspend()
        self.waiting[channel_id] = SuspendedChannel(channel, connection)
        for consumer in list((channel.consumers or {}).values()):
            consumer.queue.remove_consumer(consumer)
        connection.vhost.scheduler.put(
            ("resume", channel_id),
            connection.counters.now_ms + keep_ms,
            lambda _: self.expire(channel_id),
        )
        return True

    def expire(self, channel_id: bytes) -> int:
        """End a channel that was not resumed in time."""
        suspended = self.waiting.pop(channel_id, None)
        if suspended is not None:
            log.info("connection %d: a channel was not resumed", suspended.connection.number)
            suspended.connection.context.end_channel(suspended.connection, suspended.channel)
        return 0

    def pop(self, connection: GatewayConnection, channel_id: bytes) -> SuspendedChannel:
        """Remove and return the channel that waits under an id.

        Raises:
            NotFound: no channel of this user and virtual host waits under the id.
        """
        suspended = self.waiting.get(channel_id)
        if (
            suspended is None
            or suspended.connection.vhost is not connection.vhost
            or not connection.user.same_as(suspended.connection.user)
        ):
            raise NotFound("no channel of that id waits to be resumed")
        del self.waiting[channel_id]
        connection.vhost.scheduler.remove(("resume", channel_id))
        return suspended


def resume(connection: GatewayConnection, fresh: Channel, suspended: SuspendedChannel) -> Channel:
    """Replace the channel just opened by a suspended one, whose consumers are still stopped."""
    channel = suspended.channel
    number = fresh.number
    channel.number = number
    channel.connection = connection
    channel.state = fresh.state
    connection.channels[number] = channel
    connection.last = None
    connection.unacked += channel.unacked
    for state in channel_states(channel):
        if isinstance(state, ResumableState):
            state.move_to(connection)
    consumers = channel.consumers or {}
    for consumer in list(consumers.values()):
        if isinstance(consumer, BasicConsumer):
            consumer.connection = connection
        consumer.publisher = connection.number
        if consumer.queue.deleted:
            del consumers[consumer.tag]
    return channel


def restart(channel: Channel) -> None:
    """Restart the consumers of a resumed channel."""
    for consumer in list((channel.consumers or {}).values()):
        queue = consumer.queue
        consumer.is_parked = False
        queue.add_consumer(consumer)
        queue.drain()


def make_open_handler(suspended_channels: SuspendedChannels, handler: Handler) -> Handler:
    """Return a handler of channel.open that assigns ids to channels of 0-9."""

    def channel_open(
        connection: GatewayConnection, channel: Channel, method: ChannelOpen
    ) -> MethodBase | None:
        reply = handler(connection, channel, method)
        if connection.version is V0_9 and isinstance(reply, ChannelOpenOk):
            state = ensure_state(channel, ResumeId, ResumeId)
            state.value = reply.channel_id = suspended_channels.new_id()
        return reply

    return channel_open


def make_resume_handler(suspended_channels: SuspendedChannels) -> Handler:
    """Return the handler of channel.resume."""

    def channel_resume(
        connection: GatewayConnection, channel: Channel, method: ChannelResume
    ) -> None:
        resumed = resume(connection, channel, suspended_channels.pop(connection, method.channel_id))
        connection.reply(resumed.number, ChannelOk())
        restart(resumed)
        recheck(connection)

    return channel_resume
