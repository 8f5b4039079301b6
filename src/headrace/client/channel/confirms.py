# SPDX-License-Identifier: Apache-2.0
"""Publisher confirms of one channel: they match acks, nacks and returns with publications."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError, Nacked, Returned, fresh
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.client.channel.outgoing import Publication
    from headrace.client.link.backpressure import Backpressure
    from headrace.client.message import Message
    from headrace.protocol.codec_0_x import BasicReturn


class ConfirmWindow:
    """A first-come, first-served semaphore that bounds the unconfirmed publications."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiters: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Take a slot and return True; return False if none is free or others wait for one."""
        if self._free <= 0 or self._waiters:
            return False
        self._free -= 1
        return True

    async def acquire(self) -> None:
        """Wait for a slot in order of arrival, and take it."""
        if self.try_acquire():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter  # `release` passes its slot to this waiter.
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give a slot to the first waiter, or free it."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class Confirms:
    """Unconfirmed publications by delivery tag, which counts from 1 on each opened channel."""

    def __init__(self, unconfirmed_max: int, backpressure: Backpressure | None = None) -> None:
        self.window = ConfirmWindow(unconfirmed_max)
        self._backpressure = backpressure  # It counts each pending publication as a waiting call.
        self.pending: dict[int, Publication] = {}
        self._last_tag = 0

    def add(self, publication: Publication) -> None:
        """Record a publication that is sent now."""
        self._last_tag += 1
        self.pending[self._last_tag] = publication
        if self._backpressure is not None:
            self._backpressure.wait_begins()

    def settle(self, tag: int, multiple: bool, *, acked: bool) -> None:
        """Settle a delivery tag, with `multiple` all up to it; tag 0 with `multiple` is all."""
        if tag > self._last_tag or (tag == 0 and not multiple):
            raise AmqpError(ReplyCode.COMMAND_INVALID, f"confirm of {tag}, which was not published")
        if not multiple:
            publication = self.pending.pop(tag, None)
            if publication is not None:
                self._settle(publication, acked)
            return
        tag = tag or self._last_tag
        settled_tags: list[int] = []
        for pending in self.pending:
            if pending > tag:
                break
            settled_tags.append(pending)
        for settled_tag in settled_tags:
            self._settle(self.pending.pop(settled_tag), acked)

    def returned(self, method: BasicReturn, message: Message) -> bool:
        """Record that the broker returned a message; return False if no publication matches.

        A basic.return does not identify its publication, but it arrives before the confirm. The
        broker routes equal publications alike, so the oldest equal one is marked.
        """
        for publication in self.pending.values():
            if (
                publication.mandatory
                and publication.returned is None
                and publication.exchange == method.exchange
                and publication.routing_key == method.routing_key
                and publication.message.message_id == message.message_id
                and publication.message.correlation_id == message.correlation_id
                and publication.body == message.body
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
        """Remove and return the unconfirmed publications, oldest first; tags begin at 1 again."""
        publications = list(self.pending.values())
        self.pending.clear()
        self._last_tag = 0
        if self._backpressure is not None:
            for _ in publications:
                self._backpressure.wait_ends()
        return publications

    def fail_all(self, error: ClientError) -> None:
        """Fail all unconfirmed publications with `error`."""
        for publication in self.take_all():
            publication.settle(fresh(error))
            self.window.release()

    def _settle(self, publication: Publication, acked: bool) -> None:
        self.window.release()
        if self._backpressure is not None:
            self._backpressure.wait_ends()
        if not acked:
            publication.settle(
                Nacked(publication.message, "the broker refused the message (basic.nack)")
            )
        else:
            publication.settle(publication.returned)
