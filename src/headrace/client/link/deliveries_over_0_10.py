# SPDX-License-Identifier: Apache-2.0
"""Deliveries to a channel of our API in AMQP 0-10, and their settlement.

A transfer is delivered with a tag of our own. An ack is message.accept, combined with others, and
returns the transfer's credit; a refused delivery is released or rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.client.link.properties_0_10 import fields_of, old_header, place_of
from headrace.protocol import codec_0_x as old
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
        """Write soon what is queued."""

    def report_violation(self, text: str) -> None:
        """End the link: the broker violated the protocol."""


class Deliveries:
    """Deliveries of one channel, by their tags."""

    def __init__(self, link: DeliveriesLink, session: Session) -> None:
        self.link = link
        self.session = session
        self.accepted = SequenceSet()  # Acked, and not sent to the broker yet.
        self._delivered = 0  # The last delivery tag.
        self._unsettled: dict[int, int] = {}  # Command ids by delivery tag.

    def delivery(
        self, number: int, command: Any, header: bytes, body: bytes, no_ack: bool
    ) -> tuple[old.BasicDeliver, bytes]:
        """Convert a transfer to basic.deliver with its content header."""
        try:
            structs = decode_headers(header)
        except ExecutionError as error:
            self.link.report_violation(str(error))
            structs = []
        redelivered, exchange, routing_key = place_of(structs)
        fields = fields_of(structs)
        self._delivered += 1
        if no_ack:
            self.session.complete(number)
            self.link.schedule_flush()
        else:
            self._unsettled[self._delivered] = number
        method = old.BasicDeliver(
            consumer_tag=command.destination or "",
            delivery_tag=self._delivered,
            redelivered=redelivered,
            exchange=exchange,
            routing_key=routing_key,
        )
        return method, old_header(fields, len(body))

    def pop_settled(self, tag: int, multiple: bool) -> list[int]:
        """Return the command ids of a delivery tag, and forget them as settled."""
        if not multiple:
            number = self._unsettled.pop(tag, None)
            return [] if number is None else [number]
        tags = [each for each in self._unsettled if not tag or each <= tag]
        return [self._unsettled.pop(each) for each in tags]

    def accept(self) -> None:
        """Send the acks that have come together."""
        accepted, self.accepted = self.accepted, SequenceSet()
        self.session.send_command(MessageAccept(transfers=accepted))
        self.complete(accepted)

    def refuse(self, numbers: list[int], requeue: bool) -> None:
        """Release transfers to their queue, or reject them."""
        if not numbers:
            return
        transfers = SequenceSet((number, number) for number in numbers)
        command: Command
        if requeue:
            command = MessageRelease(transfers=transfers, set_redelivered=True)
        else:
            command = MessageReject(transfers=transfers, code=RejectCode.UNSPECIFIED)
        self.session.send_command(command)
        self.complete(transfers)

    def complete(self, transfers: SequenceSet) -> None:
        """Complete these transfers: their credit returns."""
        for low, high in transfers:
            self.session.complete_range(low, high)
        self.link.schedule_flush()
