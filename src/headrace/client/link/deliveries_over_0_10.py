# SPDX-License-Identifier: Apache-2.0
"""Deliveries to a channel in AMQP 0-10, and their settlement.

A transfer becomes a delivery, whose tag the client counts. Acks are combined in one message.accept,
and completing the transfers returns their credit. A refused delivery is released or rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.client.link.properties_0_10 import (
    encode_header_0_9_1,
    read_message_fields,
    read_routing,
)
from headrace.protocol import codec_0_x as v0_9_1
from headrace.protocol.codec_0_10 import (
    Command,
    MessageAccept,
    MessageReject,
    MessageRelease,
    decode_headers,
)
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import RejectCode
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from headrace.protocol.v0_10.session.session import Session


class DeliveriesLink(Protocol):
    """The members of a link that the deliveries of a channel use."""

    def schedule_flush(self) -> None:
        """Write the queued output in this turn of the loop."""

    def report_violation(self, text: str) -> None:
        """End the link: the broker violated the protocol."""


class Deliveries:
    """Deliveries of one channel, by their tags."""

    def __init__(self, link: DeliveriesLink, session: Session) -> None:
        self.link = link
        self.session = session
        self.unsent_accepts = SequenceSet()  # The ids of acked transfers, for the next accept.
        self._last_tag = 0  # The last delivery tag.
        self._unsettled: dict[int, int] = {}  # Command ids by delivery tag.

    def delivery(
        self, command_id: int, command: Any, header: bytes, body: bytes, no_ack: bool
    ) -> tuple[v0_9_1.BasicDeliver, bytes]:
        """Convert a transfer to basic.deliver with its content header."""
        try:
            structs = decode_headers(header)
        except ExecutionError as error:
            self.link.report_violation(str(error))
            structs = []
        redelivered, exchange, routing_key = read_routing(structs)
        message_fields = read_message_fields(structs)
        self._last_tag += 1
        if no_ack:
            self.session.complete(command_id)
            self.link.schedule_flush()
        else:
            self._unsettled[self._last_tag] = command_id
        method = v0_9_1.BasicDeliver(
            consumer_tag=command.destination or "",
            delivery_tag=self._last_tag,
            redelivered=redelivered,
            exchange=exchange,
            routing_key=routing_key,
        )
        return method, encode_header_0_9_1(message_fields, len(body))

    def pop_settled(self, tag: int, multiple: bool) -> list[int]:
        """Return the command ids of a delivery tag, and forget them as settled."""
        if not multiple:
            command_id = self._unsettled.pop(tag, None)
            return [] if command_id is None else [command_id]
        tags = [delivery_tag for delivery_tag in self._unsettled if not tag or delivery_tag <= tag]
        return [self._unsettled.pop(delivery_tag) for delivery_tag in tags]

    def accept(self) -> None:
        """Send the accumulated acks as one message.accept."""
        unsent_accepts, self.unsent_accepts = self.unsent_accepts, SequenceSet()
        self.session.send_command(MessageAccept(transfers=unsent_accepts))
        self.complete(unsent_accepts)

    def refuse(self, numbers: list[int], requeue: bool) -> None:
        """Release transfers to their queue, or reject them."""
        if not numbers:
            return
        transfers = SequenceSet((command_id, command_id) for command_id in numbers)
        command: Command
        if requeue:
            command = MessageRelease(transfers=transfers, set_redelivered=True)
        else:
            command = MessageReject(transfers=transfers, code=RejectCode.UNSPECIFIED)
        self.session.send_command(command)
        self.complete(transfers)

    def complete(self, transfers: SequenceSet) -> None:
        """Complete these transfers, which returns their credit."""
        for low, high in transfers:
            self.session.complete_range(low, high)
        self.link.schedule_flush()
