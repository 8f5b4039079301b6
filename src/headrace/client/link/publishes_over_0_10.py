# SPDX-License-Identifier: Apache-2.0
"""Publishes of a channel of our API in AMQP 0-10, and their confirms.

A publish is a message.transfer; the broker's message.accept of it is the confirm, its rejection as
unroutable is basic.return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.link.properties_0_10 import structs_of
from headrace.client.message import Message, decode_properties, message_fields
from headrace.protocol import codec_0_x as old
from headrace.protocol.codec_0_10 import MessageTransfer, encode_headers
from headrace.spec.reply_0_10 import AcceptMode, AcquireMode, RejectCode

if TYPE_CHECKING:
    from headrace.client.link.link_0_x import Owner
    from headrace.protocol.v0_10.session.session import Session
    from headrace.wire.ranges import SequenceSet

NO_ROUTE = 312


@dataclass(slots=True, eq=False)
class Sent:
    """A publish whose outcome is not known."""

    tag: int  # 0 without a confirm.
    method: old.BasicPublish
    header: bytes
    body: bytes


class Publishes:
    """Publishes of one channel whose outcome is not known."""

    def __init__(self, session: Session, number: int, owner: Owner) -> None:
        self.session = session
        self.number = number
        self.owner = owner
        self.confirms = False
        self._tag = 0  # The tag of the last publish with confirms.
        self._sent: dict[int, Sent] = {}  # Sent publishes by command id.

    def send(self, method: old.MethodBase, header: bytes, body: bytes) -> None:
        """Transfer a message; `header` is a content header frame's payload."""
        assert isinstance(method, old.BasicPublish)
        message = Message(body, **message_fields(decode_properties(header)))
        structs = structs_of(
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
            self._sent[number] = Sent(self._tag if self.confirms else 0, method, header, body)

    def outcome(self, transfers: SequenceSet, code: int | None, text: str) -> None:
        """Handle the broker's accept (None) or reject of publishes."""
        if transfers.count() > len(self._sent):
            numbers = [number for number in self._sent if number in transfers]
        else:
            numbers = [number for number in transfers.numbers() if number in self._sent]
        tags = []
        for number in numbers:
            sent = self._sent.pop(number)
            if code is None or not sent.method.mandatory or code != RejectCode.UNROUTABLE:
                tags.append(sent.tag)
                continue
            returned = old.BasicReturn(
                reply_code=NO_ROUTE,
                reply_text=text or "NO_ROUTE",
                exchange=sent.method.exchange,
                routing_key=sent.method.routing_key,
            )
            self.owner.link_content(self.number, returned, sent.header, sent.body)
            if sent.tag:
                self.owner.link_method(self.number, old.BasicAck(delivery_tag=sent.tag))
        tags = [tag for tag in tags if tag]
        if not tags:
            return
        first = next((sent.tag for sent in self._sent.values() if sent.tag), tags[-1] + 1)
        if first > tags[-1] and code is None:
            self.owner.link_method(
                self.number, old.BasicAck(delivery_tag=tags[-1], multiple=len(tags) > 1)
            )
            return
        for tag in tags:
            if code is None:
                self.owner.link_method(self.number, old.BasicAck(delivery_tag=tag))
            else:
                self.owner.link_method(self.number, old.BasicNack(delivery_tag=tag))
