# SPDX-License-Identifier: Apache-2.0
"""The broker's connection of a 0-8, 0-9 or 0-9-1 client: logins, confirms, closes.

:mod:`headrace.gateway.v0_x.connection.publish_receiver` handles publishes, the functions of
:mod:`headrace.gateway.v0_x.methods` all other methods, a module for each class.
"""

import logging
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.pending_confirms import ANSWER_NACK as C_ANSWER_NACK
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.owner import ConnectionOwner
    from headrace.gateway.v0_x.connection.publish_receiver import PublishReceiver
    from headrace.gateway.v0_x.peer import Peer
    from headrace.model.queue.queue import Queue
    from headrace.protocol.v0_x.channel import CLOSING as C_CLOSING
    from headrace.protocol.v0_x.channel import Channel as ProtocolChannel
    from headrace.protocol.v0_x.connection import Connection
    from headrace.protocol.v0_x.frames import ACK_FLAG_AT as C_ACK_FLAG_AT
    from headrace.protocol.v0_x.frames import ACK_LEN as C_ACK_LEN
    from headrace.protocol.v0_x.frames import ARGUMENTS_AT as C_ARGUMENTS_AT
    from headrace.protocol.v0_x.frames import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_x.frames import FRAME_END as C_END
    from headrace.protocol.v0_x.frames import FRAME_METHOD as C_METHOD
    from headrace.protocol.v0_x.frames import OVERHEAD as C_OVERHEAD
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_x.handshake import STATE_CLOSED, STATE_CLOSING, STATE_OPEN
    from headrace.spec.ids import BASIC_ACK, BASIC_CONSUME
    from headrace.wire.memory import put16, put32, put64

from headrace.gateway.messages.pending_confirms import NOT_DURABLE
from headrace.gateway.v0_x.connection import login
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.gateway.v0_x.quirks import NO_QUIRKS
from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicCancelOk,
    BasicNack,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionUnblocked,
    MethodBase,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import FOR_OUTPUT
from headrace.protocol.v0_x.handshake import Role
from headrace.protocol.version_negotiation import negotiate
from headrace.spec.reply import ReplyCode, Scope
from headrace.spec.tables import V0_9, V0_10

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.messages.pending_confirms import PendingConfirms
    from headrace.gateway.security.user import User
    from headrace.model.ports import Store
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.protocol.endpoint import DurableLog

log = logging.getLogger(__name__)

RELAYED = b"AMQP\x52\x01\x00\x00"  # The header of a connection that another broker relays.


class GatewayConnection(Peer):
    """A 0-8, 0-9 or 0-9-1 client's connection at the broker."""

    def __init__(self, context: V0xContext, number: int, loopback: bool) -> None:
        Peer.__init__(
            self,
            Role.SERVER,
            pool=context.pool,
            frame_max=context.frame_max,
            channel_max=context.channel_max,
            body_max=context.body_max,
        )
        self.context = context
        self.counters = context.counters
        self.number = number
        self.limit(context.output_max)
        self.hold_above = 2 * context.output_max
        self.unacked = 0
        self.prefetch = 0
        self.unflushed = []
        self.store: Store | None = None  # The store of its virtual host; None before it is open.
        self.publish_receiver = PublishReceiver(self, context)
        self.set_owner(ConnectionOwner(self, context, self.publish_receiver))
        self.loopback = loopback
        self.mechanism = ""
        self.speaks_extensions = False
        self.plain_source = None
        self.plain_result = b""
        self.paused = []
        self.plug_ins: dict[type, object] | None = None  # The states of plug-ins, by class.
        self.capabilities: Mapping[str, object] = {}
        self.client_properties: Mapping[str, object] = {}
        self.quirks = NO_QUIRKS  # Set by connection.start-ok.

    # Keeps 0-9-1/s020, 0-9/connection.open.virtual-host#separation.
    def open_host(
        self, vhost: "VirtualHost", store: "Store", pending_confirms: "PendingConfirms"
    ) -> None:
        """Let the client use a virtual host; ``store`` and ``pending_confirms`` are the host's."""
        self.vhost = vhost
        self.store = store
        self.pending_confirms = pending_confirms
        self.publish_receiver.distributor.vhost = vhost
        self.publish_receiver.distributor.store = store

    # --- Confirms -------------------------------------------------------------------------------

    def send_confirm(self, channel: ProtocolChannel, token: int) -> None:
        gateway_channel: Channel = cython.cast(Channel, channel)
        if (
            self.ended
            or gateway_channel.state == C_CLOSING
            or self.channels.get(gateway_channel.number) is not gateway_channel
        ):
            return
        if gateway_channel.sends_body():
            gateway_channel.deferred_confirms = [*(gateway_channel.deferred_confirms or ()), token]
            return
        if token & C_ANSWER_NACK:
            seq = token & ~C_ANSWER_NACK
            gateway_channel.confirmed_seq = seq
            self.write_frame(
                C_METHOD,
                gateway_channel.number,
                encode_method(self.version, BasicNack(delivery_tag=seq)),
            )
            return
        self.write_ack(gateway_channel, token)

    def write_ack(self, channel: Channel, seq: int) -> None:
        """Confirm every publish up to ``seq``."""
        self.reserve(C_ACK_LEN + C_OVERHEAD)
        out = self.buffer
        position = self.tail
        out[position] = C_METHOD
        put16(out, position + C_CHANNEL_AT, channel.number)
        put32(out, position + C_SIZE_AT, C_ACK_LEN)
        put32(out, position + C_PAYLOAD_AT, BASIC_ACK)
        put64(out, position + C_ARGUMENTS_AT, seq)
        out[position + C_ACK_FLAG_AT] = 1 if seq - channel.confirmed_seq > 1 else 0
        out[position + C_PAYLOAD_AT + C_ACK_LEN] = C_END
        self.tail = position + C_ACK_LEN + C_OVERHEAD
        channel.tally.confirm += seq - channel.confirmed_seq
        channel.confirmed_seq = seq

    # --- Control --------------------------------------------------------------------------------

    def accept_header(self, header: bytes) -> None:
        make = self.context.make_0_10
        if negotiate(header) is V0_10 and self.transport is not None and make is not None:
            self.state_number = STATE_CLOSED
            self.transport.become(make(self.number, self.loopback))
            return
        relayed = self.context.make_relayed
        if header == RELAYED and relayed is not None and self.transport is not None:
            self.state_number = STATE_CLOSED
            self.transport.become(relayed(self.context, self.number, self.loopback))
            return
        Connection.accept_header(self, header)

    def accept_login(self, user: "User") -> None:
        login.accept(self, user)

    def refuse_login(self) -> None:
        login.refuse(self)

    def challenge(self, data: bytes) -> None:
        """Send a challenge of the SASL mechanism."""
        login.challenge(self, data)

    def recheck(self) -> None:
        """End consumers that changed permissions no longer allow."""
        if self.state_number == STATE_OPEN:
            login.recheck(self)

    def accept_secret(self, user: "User") -> None:
        """Accept the new secret."""
        login.accept_secret(self, user)

    def refuse_secret(self) -> None:
        """Refuse the new secret."""
        login.refuse_secret(self)

    def channel_count(self) -> int:
        """Return the number of open channels."""
        return len(self.channels)

    def explain(self, error: Exception) -> AmqpError:
        """Return the protocol's error for an exception."""
        return self.owner.explain(error, self.current)

    def inject(self, frames: bytes) -> None:
        """Handle frames as if the client had sent them now."""
        # Without a stopwatch, no turn ends before all frames are handled.
        stopwatch, self.stopwatch = self.stopwatch, None
        self.feed(frames, len(frames))
        self.stopwatch = stopwatch

    def reply(self, number: int, method: MethodBase) -> None:
        """Send a method after the deferred answers of its channel."""
        if number == 0:
            self.send_method(0, method)
            return
        channel = self.channels.get(number)
        payload = encode_method(self.version, method)
        if channel is None:
            self.write_frame(C_METHOD, number, payload)
        else:
            self.send_in_order(channel, payload)

    def reply_when_durable(self, channel: Channel, method: MethodBase) -> None:
        """Answer once everything that the store has appended so far is on disk."""
        self.pending_confirms.join(
            self.defer_answer(channel, encode_method(self.version, method)), 0
        )

    def on_consumer_cancelled(self, channel: ProtocolChannel, tag: str) -> None:
        """Send basic.cancel for a consumer of a deleted queue, if the client supports it."""
        if self.capabilities.get("consumer_cancel_notify") and channel.state != C_CLOSING:
            self.reply(channel.number, BasicCancel(consumer_tag=tag, no_wait=True))

    def on_consumer_ended(self, channel: ProtocolChannel, tag: str) -> None:
        """Send basic.cancel for a consumer that has reached its end.

        A client with the capability consumer_cancel_notify answers it. Any other gets
        basic.cancel-ok instead, as from Broker-J: in 0-9-1 only clients send basic.cancel.
        """
        if channel.state != C_CLOSING:
            is_notified = self.capabilities.get("consumer_cancel_notify")
            method = BasicCancel if is_notified else BasicCancelOk
            self.reply(channel.number, method(consumer_tag=tag))

    def on_consumer_failed(self, channel: ProtocolChannel, error: Exception) -> None:
        """Close the channel of a consumer whose source failed, with the error."""
        if channel.state == C_CLOSING or self.ended:
            return
        last, current = self.last, self.current
        self.last = channel
        self.current = BASIC_CONSUME
        self.fail(self.explain(error))
        self.last = last
        self.current = current

    # --- Blocking and output --------------------------------------------------------------------

    def starve(self, queue: Queue) -> None:
        if self.starving is None:
            self.starving = {}
        self.starving[queue] = None
        if self.transport is not None:
            self.transport.watch_output()

    def has_unacked(self) -> bool:
        return self.unacked > 0

    def block(self, reason: str) -> None:
        """Stop publishing; send connection.blocked, if the client supports it."""
        self.blocked = True
        if self.capabilities.get("connection.blocked") and self.state_number == STATE_OPEN:
            self.reply(0, ConnectionBlocked(reason=reason))

    def unblock(self) -> None:
        """Allow publishing again; send connection.unblocked, if the client supports it."""
        if self.blocked:
            self.blocked = False
            if self.capabilities.get("connection.blocked") and self.state_number == STATE_OPEN:
                self.reply(0, ConnectionUnblocked())

    def on_output_drained(self) -> None:
        """Resume the queues that waited for the client to read the output."""
        self.starving = None
        self.refresh_all()
        paused, self.paused = self.paused, []
        for channel in paused:
            self.resume(channel, FOR_OUTPUT)

    def refresh_all(self) -> None:
        channel: Channel
        for channel in list(self.channels.values()):  # type: ignore[assignment]  # All are of this class.
            consumers = channel.consumers
            if consumers is not None:
                for consumer in list(consumers.values()):
                    consumer.queue.unpark(consumer)

    # --- The end of the connection --------------------------------------------------------------

    def force_close(self, reason: str) -> None:
        self.fail(AmqpError(ReplyCode.CONNECTION_FORCED, reason))

    def fail_changes(self, store: "DurableLog") -> None:
        if self.promised and self.held_by is store:
            self.drop_promised()
            self.fail(AmqpError(ReplyCode.RESOURCE_ERROR, NOT_DURABLE, scope=Scope.CONNECTION))

    def close_for_shutdown(self) -> None:
        if self.state_number == STATE_OPEN:
            self.send_method(
                0,
                ConnectionClose(
                    reply_code=320,
                    reply_text="CONNECTION_FORCED - broker forced connection closure with "
                    "reason 'shutdown'",
                ),
            )

    def end(self) -> None:
        """Release all resources of the connection, which has ended for any reason."""
        if self.ended:
            if self.state_number == STATE_CLOSING and not self.ignores_input:
                self.context.log_loss(self)
            return
        self.ended = True
        if self.state_number == STATE_OPEN:
            self.context.log_loss(self)
        # Channels of a 0-9 connection that ended without a close may be resumed.
        is_resumable = self.state_number == STATE_OPEN and self.version is V0_9
        channel: Channel
        for channel in list(self.channels.values()):  # type: ignore[assignment]  # All are of this class.
            if not is_resumable or not self.context.keep_channel(self, channel):
                self.context.end_channel(self, channel)
        self.starving = None
        self.publish_receiver.clear_routes()
        self.context.end_connection(self)
