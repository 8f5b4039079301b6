# SPDX-License-Identifier: Apache-2.0
"""Publishes of a channel in AMQP 0-10, and their confirms.

A publish is a message.transfer; the broker's message.accept of it is the confirm, its rejection as
unroutable is basic.return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.link.properties_0_10 import build_header_structs
from headrace.client.message import Message, decode_properties, message_fields
from headrace.protocol import codec_0_x as v0_9_1
from headrace.protocol.codec_0_10 import MessageTransfer, encode_headers
from headrace.spec.reply_0_10 import AcceptMode, AcquireMode, RejectCode

if TYPE_CHECKING:
    from headrace.client.link.link_0_x import LinkOwner
    from headrace.protocol.v0_10.session.session import Session
    from headrace.wire.ranges import SequenceSet

NO_ROUTE = 312


@dataclass(slots=True, eq=False)
class UnconfirmedPublish:
    """A publish without an outcome."""

    tag: int  # The delivery tag of its confirm; 0 for a publish without confirms.
    method: v0_9_1.BasicPublish
    header: bytes
    body: bytes


class Publishes:
    """Sends the publishes of one channel, and reports their confirms and returns to the owner."""

    def __init__(self, session: Session, number: int, owner: LinkOwner) -> None:
        self.session = session
        self.number = number
        self.owner = owner
        self.confirms = False
        self._tag = 0  # The tag of the last publish with confirms.
        self._unconfirmed: dict[int, UnconfirmedPublish] = {}  # Sent publishes by command id.

    def send(self, method: v0_9_1.MethodBase, header: bytes, body: bytes) -> None:
        """Transfer a message; `header` is a content header frame's payload."""
        assert isinstance(method, v0_9_1.BasicPublish)
        message = Message(body, **message_fields(decode_properties(header)))
        structs = build_header_structs(
            message,
            method.exchange,
            method.routing_key,
            discard_unroutable=not method.mandatory,
            immediate=method.immediate,
        )
        explicit = self.confirms or method.mandatory
        number = self.session.send_command(
            MessageTransfer(
                destination=method.exchange,
                accept_mode=AcceptMode.EXPLICIT if explicit else AcceptMode.NONE,
                acquire_mode=AcquireMode.PRE_ACQUIRED,
            ),
            False,
            encode_headers(structs),
            body,
        )
        if explicit:
            if self.confirms:
                self._tag += 1
            self._unconfirmed[number] = UnconfirmedPublish(
                self._tag if self.confirms else 0, method, header, body
            )

    def settle(self, transfers: SequenceSet, code: int | None, text: str) -> None:
        """Report the outcome of transfers: accepted (`code` None), or rejected with a code."""
        if transfers.count() > len(self._unconfirmed):
            numbers = [number for number in self._unconfirmed if number in transfers]
        else:
            numbers = [number for number in transfers.numbers() if number in self._unconfirmed]
        tags = []
        for number in numbers:
            publish = self._unconfirmed.pop(number)
            if code is None or not publish.method.mandatory or code != RejectCode.UNROUTABLE:
                tags.append(publish.tag)
                continue
            returned = v0_9_1.BasicReturn(
                reply_code=NO_ROUTE,
                reply_text=text or "NO_ROUTE",
                exchange=publish.method.exchange,
                routing_key=publish.method.routing_key,
            )
            self.owner.link_content(self.number, returned, publish.header, publish.body)
            if publish.tag:
                self.owner.link_method(self.number, v0_9_1.BasicAck(delivery_tag=publish.tag))
        tags = [tag for tag in tags if tag]
        if not tags:
            return
        lowest_tag = next(
            (publish.tag for publish in self._unconfirmed.values() if publish.tag), tags[-1] + 1
        )
        if lowest_tag > tags[-1] and code is None:
            self.owner.link_method(
                self.number, v0_9_1.BasicAck(delivery_tag=tags[-1], multiple=len(tags) > 1)
            )
            return
        for tag in tags:
            if code is None:
                self.owner.link_method(self.number, v0_9_1.BasicAck(delivery_tag=tag))
            else:
                self.owner.link_method(self.number, v0_9_1.BasicNack(delivery_tag=tag))
