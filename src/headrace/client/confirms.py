# SPDX-License-Identifier: Apache-2.0
"""Publisher confirms of one channel: which message each ack, nack and return is about."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError, Nacked, Returned, fresh
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.client.message import Message
    from headrace.protocol.codec_0_x import BasicPublish, BasicReturn


@dataclass(slots=True, eq=False)
class Publication:
    """A message that was sent and is not confirmed."""

    message: Message
    method: BasicPublish
    header: bytes
    confirmed: asyncio.Future[None]
    returned: Returned | None = None

    def settle(self, error: ClientError | None) -> None:
        """The outcome is known, unless nobody waits for it any more."""
        if not self.confirmed.done():
            if error is None:
                self.confirmed.set_result(None)
            else:
                self.confirmed.set_exception(error)


class Confirms:
    """Unconfirmed publications by delivery tag, which counts from 1 on each opened channel."""

    def __init__(self, unconfirmed_max: int) -> None:
        self.room = asyncio.Semaphore(unconfirmed_max)
        self.pending: dict[int, Publication] = {}
        self._last_tag = 0

    def add(self, publication: Publication) -> None:
        """The publication is the next that goes out."""
        self._last_tag += 1
        self.pending[self._last_tag] = publication

    def settle(self, tag: int, multiple: bool, *, acked: bool) -> None:
        """The broker acked or nacked a delivery tag, or all up to it; 0 with multiple is all."""
        if tag > self._last_tag or (tag == 0 and not multiple):
            raise AmqpError(ReplyCode.COMMAND_INVALID, f"confirm of {tag}, which was not published")
        if not multiple:
            publication = self.pending.pop(tag, None)
            if publication is not None:
                self._settle(publication, acked)
            return
        for first in list(self._up_to(tag or self._last_tag)):
            self._settle(self.pending.pop(first), acked)

    def returned(self, method: BasicReturn, message: Message) -> bool:
        """Note that the broker returned a message; False when none of these is the one.

        The protocol does not say which publication a return is about. It comes before that one's
        confirm, so it is the oldest that says the same: equal ones share their fate.
        """
        for publication in self.pending.values():
            sent = publication.method
            if (
                sent.mandatory
                and publication.returned is None
                and sent.exchange == method.exchange
                and sent.routing_key == method.routing_key
                and publication.message.message_id == message.message_id
                and publication.message.correlation_id == message.correlation_id
                and publication.message.body == message.body
            ):
                publication.returned = Returned(
                    publication.message,
                    method.reply_text,
                    method.reply_code,
                    method.exchange,
                    method.routing_key,
                )
                return True
        return False

    def take_all(self) -> list[Publication]:
        """Forget and return what is unconfirmed, oldest first; tags begin at 1 again."""
        publications = list(self.pending.values())
        self.pending.clear()
        self._last_tag = 0
        return publications

    def fail_all(self, error: ClientError) -> None:
        """None of them will be confirmed, for the reason `error`."""
        for publication in self.take_all():
            publication.settle(fresh(error))
            self.room.release()

    def _up_to(self, tag: int) -> Iterator[int]:
        for pending in self.pending:
            if pending > tag:
                return
            yield pending

    def _settle(self, publication: Publication, acked: bool) -> None:
        self.room.release()
        if not acked:
            publication.settle(
                Nacked(publication.message, "the broker refused the message (basic.nack)")
            )
        else:
            publication.settle(publication.returned)
