# SPDX-License-Identifier: Apache-2.0
"""One connection to a broker in AMQP 0-8 or 0-9, with substitutes for missing methods.

A channel.flow substitutes for confirms: its answer, in order, shows that the broker has handled
every earlier publish. It does not show that the messages are on disk, as the commit of a
transaction does. A reject of each delivery substitutes for basic.nack. The link itself answers
basic.recover, which has no answer in 0-8 and 0-9. Other methods that the version lacks raise
UsageError.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headrace.client.errors import UsageError
from headrace.client.link.capabilities import is_headrace, is_qpid
from headrace.client.link.link_0_x import Link
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicRecover,
    BasicRecoverOk,
    BasicReject,
    ChannelClose,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelResume,
    ConfirmSelect,
    ConfirmSelectOk,
    MethodBase,
    encode_method,
)
from headrace.protocol.v0_x.events import ContentReceived, Event, MethodReceived
from headrace.spec.tables import V0_8
from headrace.wire.frame import FRAME_METHOD
from headrace.wire.table import encode_table

if TYPE_CHECKING:
    from headrace.client.channel.outgoing import Publication
    from headrace.client.url import Settings
    from headrace.wire.table import Value


CAPABILITIES: dict[str, Value] = {
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
}


class _ChannelState:
    """The state of the substitutes on one channel."""

    def __init__(self) -> None:
        self.confirms = False
        self.published = 0  # The number of publishes with confirms.
        self.covered_by_flow = 0  # The number of publishes that a channel.flow has followed.
        self.flows: deque[int] = deque()  # The publishes before each unanswered channel.flow.
        self.unsettled: list[int] = []  # The delivery tags of unsettled deliveries.


class EarlyLink(Link):
    """A link in AMQP 0-8 or 0-9."""

    def _make_machine(self, settings: Settings) -> Any:
        self._states: dict[int, _ChannelState] = {}
        return super()._make_machine(settings)

    def send(self, channel: int, method: MethodBase) -> None:
        """Queue a method, or its substitute."""
        match method:
            case ChannelOpen() | ChannelResume():
                self._states[channel] = _ChannelState()
            case ChannelClose():
                self._states.pop(channel, None)  # This drops pending answers of substitutes.
            case ConfirmSelect():
                self._states[channel].confirms = True
                self._answer(channel, ConfirmSelectOk())
                return
            case BasicNack():
                for tag in self._pop_settled(channel, method.delivery_tag, method.multiple):
                    self.send(channel, BasicReject(delivery_tag=tag, requeue=method.requeue))
                return
            case BasicAck() | BasicReject():
                multiple = isinstance(method, BasicAck) and method.multiple
                self._pop_settled(channel, method.delivery_tag, multiple)
            case BasicRecover():
                self._send(channel, method)
                self._answer(channel, BasicRecoverOk())
                return
        self._send(channel, method)

    def _send(self, channel: int, method: MethodBase) -> None:
        version = self.settings.version
        if version not in method.INDEX:
            raise UsageError(f"AMQP {version.label} has no {method.NAME}")
        if isinstance(method, BasicConsume) and self._lacks_table(channel, method):
            self._check()
            payload = encode_method(version, method) + encode_table({})
            self.machine.write_frame(FRAME_METHOD, channel, payload)
            self._schedule_flush()
            return
        super().send(channel, method)

    def _lacks_table(self, channel: int, method: BasicConsume) -> bool:
        """Return True if a table is absent that the broker, like Qpid in 0-8, reads here."""
        is_early = self.settings.version is V0_8 and not method.arguments
        return is_early and is_qpid(self.server_properties) and channel in self.machine.channels

    def send_content(self, channel: int, method: MethodBase, header: bytes, body: bytes) -> None:
        """Queue a method with its content."""
        super().send_content(channel, method, header, body)
        state = self._states.get(channel)
        if state is not None and state.confirms and isinstance(method, BasicPublish):
            state.published += 1
            if not self._is_flush_due:  # A large publish was written without a channel.flow.
                self._is_flush_due = True
                self._loop.call_soon(self.flush)

    def send_publication(self, channel: int, publication: Publication) -> None:
        """Queue a publish."""
        self.send_content(channel, publication.method, publication.header, publication.body)

    def send_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        """Queue a basic.ack."""
        self.send(channel, BasicAck(delivery_tag=delivery_tag, multiple=multiple))

    def flush(self) -> None:
        """Write the queued output, with a channel.flow on channels with unconfirmed publishes."""
        if self.is_open:
            for channel, state in self._states.items():
                if state.covered_by_flow < state.published and channel in self.machine.channels:
                    state.covered_by_flow = state.published
                    state.flows.append(state.published)
                    self.machine.send_method(channel, ChannelFlow(active=True))
        super().flush()

    def _handle(self, event: Event) -> None:
        if isinstance(event, MethodReceived) and event.channel:
            state = self._states.get(event.channel)
            if state is not None and isinstance(event.method, ChannelFlowOk) and state.flows:
                tag = state.flows.popleft()
                ack = BasicAck(delivery_tag=tag, multiple=True)
                self._owner.link_method(event.channel, ack)
                return
        elif isinstance(event, ContentReceived):
            state = self._states.get(event.channel)
            if state is not None and isinstance(event.method, BasicDeliver | BasicGetOk):
                state.unsettled.append(event.method.delivery_tag)
        super()._handle(event)

    def _pop_settled(self, channel: int, tag: int, multiple: bool) -> list[int]:
        """Return the deliveries of a tag, and forget them as settled."""
        state = self._states[channel]
        tags = [
            delivery_tag
            for delivery_tag in state.unsettled
            if delivery_tag == tag or (multiple and delivery_tag < tag)
        ]
        if multiple and not tag:
            tags = state.unsettled
        state.unsettled = [
            delivery_tag for delivery_tag in state.unsettled if delivery_tag not in tags
        ]
        return tags

    def _answer(self, channel: int, method: MethodBase) -> None:
        """Answer in place of the broker, in the next turn of the loop."""
        state = self._states[channel]

        def answer() -> None:
            if self._states.get(channel) is state:
                self._owner.link_method(channel, method)

        self._loop.call_soon(answer)

    def _capabilities(self) -> dict[str, Value]:
        """Return the capabilities for RabbitMQ and Headrace; other brokers decode only texts.

        They lack connection.blocked, which is not a method of these versions.
        """
        reads_tables = "capabilities" in self.server_properties or is_headrace(
            self.server_properties
        )
        return CAPABILITIES if reads_tables else {}
