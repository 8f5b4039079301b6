# SPDX-License-Identifier: Apache-2.0
"""Publishing on a channel: with confirms, in a transaction, or without either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING

from headrace.client.channel.batch import Batch, Transaction, iterate_messages
from headrace.client.channel.channel_base import ChannelBase, ConnectionPort
from headrace.client.channel.confirms import Confirms
from headrace.client.channel.outgoing import Publication
from headrace.client.errors import ClientError, ConfirmLost, Returned, UsageError, fresh
from headrace.client.message import Content, read_message
from headrace.protocol.codec_0_x import (
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)

if TYPE_CHECKING:
    from headrace.client.link.link_0_x import Link

UNCONFIRMED_MAX = 1000  # The default number of unconfirmed messages of a channel.
YIELD_EVERY = 100  # Publishes without a wait after which the loop runs other tasks.


class Mode(Enum):
    """The mode in which a channel publishes. The protocol has no way back to NONE."""

    NONE = "none"
    CONFIRM = "confirm"
    TX = "tx"


class Publishing(ChannelBase):
    """The part of a channel that publishes."""

    def __init__(
        self,
        connection: ConnectionPort,
        number: int,
        *,
        confirm: bool,
        unconfirmed_max: int,
        retry_lost: bool,
        on_return: Callable[[Returned], None] | None,
    ) -> None:
        super().__init__(connection, number)
        self.unconfirmed_max = unconfirmed_max
        self._confirm = confirm
        self._retry_lost = retry_lost
        self._on_return = on_return
        self._confirms = Confirms(unconfirmed_max, connection.backpressure)
        self._mode = Mode.NONE
        self._transaction: Transaction | None = None

    async def publish(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish a message and wait for the broker's confirm.

        Without an exchange the routing key is the name of a queue. In a transaction, and on a
        channel with `confirm=False`, it does not wait. Raises Nacked when the broker refuses the
        message, ConfirmLost when the connection is lost before the confirm, and with `mandatory`
        Returned when no queue gets it.
        """
        publication = Publication(message, exchange, routing_key, mandatory, self.ticket)
        publication.outcome = asyncio.get_running_loop().create_future()
        await self.send_publication(publication)
        await publication.outcome

    async def publish_soon(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> asyncio.Future[None]:
        """Publish a message and return a future of its confirm, to have many in flight.

        The call waits only while `unconfirmed_max` messages are unconfirmed, or while the broker
        does not read.
        """
        publication = Publication(message, exchange, routing_key, mandatory, self.ticket)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        publication.outcome = future
        await self.send_publication(publication)
        return future

    async def publish_many(
        self,
        messages: Iterable[Content] | AsyncIterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish messages, many in flight, and wait for all confirms; return their number.

        The first failure stops the sending. It is raised once every message sent has its outcome.
        """
        batch = Batch(self, routing_key, exchange, mandatory=mandatory)
        async for message in iterate_messages(messages):
            await batch.add(message)
            if batch.failure is not None:
                break
        return await batch.finish()

    def transaction(self) -> Transaction:
        """Return a context manager whose publishes and acks take effect together, or not at all.

        Entering raises UsageError on a channel that has published with confirms.
        """
        return Transaction(self)

    # --- For the package ----------------------------------------------------------------------

    def send_now(self, publication: Publication) -> bool:
        """Send a publication if that needs no wait; return True if it was sent."""
        link = self._link
        if (
            not self.may_hand_over
            or link is None
            or not self.connection.is_ready
            or not link.can_write.is_set()
            or not self._flow.is_set()
        ):
            return False
        if self._mode is Mode.NONE:
            link.send_publication(self.number, publication)
            self._sent_count += 1
            publication.settle(None)
            return True
        if not self._confirms.window.try_acquire():
            return False
        try:
            link.send_publication(self.number, publication)
        except BaseException:
            self._confirms.window.release()
            raise
        self._confirms.add(publication)
        return True

    async def send_publication(self, publication: Publication) -> None:
        """Send a publication as soon as possible; without confirms it is settled then."""
        if self.send_now(publication):
            if self._mode is Mode.NONE and self._sent_count % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # A flood of publishes must not starve the loop.
            return
        if not self._confirm or self._mode is Mode.TX:
            link = await self._writable()
            self._check_transaction()
            link.send_publication(self.number, publication)
            self._sent_count += 1
            if self._sent_count % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            publication.settle(None)
            return
        await self._confirms.window.acquire()
        try:
            await self._publish(publication)
        except BaseException:
            self._confirms.window.release()
            raise

    @property
    def may_hand_over(self) -> bool:
        """True if `send_now` may send publishes: the channel is in its mode, and not in tx.

        Raises ClientError when the channel is closed.
        """
        if self._error is not None:
            raise fresh(self._error)
        return self._mode is Mode.CONFIRM or (self._mode is Mode.NONE and not self._confirm)

    async def confirm_by(self, confirms: Confirms) -> None:
        """Select confirm mode, and pass acks, nacks and returns to `confirms`."""
        await self._call(ConfirmSelect(), ConfirmSelectOk)
        self._confirms = confirms
        self._mode = Mode.CONFIRM

    async def begin(self, transaction: Transaction) -> None:
        """Begin a transaction; UsageError when one is under way."""
        while self._transaction is not None and self._transaction.ended is not None:
            await self._transaction.ended.wait()  # An interrupted thread left it while it ended.
        link = await self._ready()
        if self._transaction is not None:
            raise UsageError("a transaction is under way on this channel; they do not nest")
        if self._mode is Mode.CONFIRM:
            raise UsageError("this channel confirms its publishes; use another for transactions")
        self._transaction = transaction
        if self._mode is Mode.NONE:
            self._mode = Mode.TX
            try:
                await self._calls.exchange(link, TxSelect(), TxSelectOk)
            except BaseException:
                self._transaction = None
                raise

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or roll back a transaction."""
        transaction.ended = asyncio.Event()
        try:
            if not commit:
                if transaction.error is None and self._link is not None:
                    await self._calls.exchange(self._link, TxRollback(), TxRollbackOk)
                return
            self._check_transaction()
            await self._calls.exchange(await self._ready(), TxCommit(), TxCommitOk)
            self._decide(commit=True)
        finally:
            self._transaction = None
            transaction.ended.set()
            self._decide(commit=False)
        if transaction.returned:
            raise transaction.returned[0]

    # --- Inside -------------------------------------------------------------------------------

    def _decide(self, *, commit: bool) -> None:
        """Handle the commit or rollback of a transaction's settlements; `Channel` overrides it."""

    def _returned(self, method: BasicReturn, header: bytes, body: bytes) -> None:
        message = read_message(header, body)
        if self._confirms.returned(method, message):
            return
        returned = Returned(
            message, method.reply_text, method.reply_code, method.exchange, method.routing_key
        )
        if self._transaction is not None:
            self._transaction.returned.append(returned)
        elif self._on_return is not None:
            self._on_return(returned)

    async def _publish(self, publication: Publication) -> None:
        link = await self._writable()
        if self._mode is Mode.TX:
            raise UsageError("this channel became transactional while a publish was waiting")
        if self._mode is Mode.NONE:
            self._calls.send_request(link, ConfirmSelect(), ConfirmSelectOk)
            self._mode = Mode.CONFIRM
        link.send_publication(self.number, publication)
        self._confirms.add(publication)

    def _publish_again(self, link: Link) -> None:
        """Send lost unconfirmed messages again."""
        publications = self._confirms.take_all()
        for publication in publications:
            self._confirms.add(publication)
        for publication in publications:
            link.send_publication(self.number, publication)

    def _check_transaction(self) -> None:
        """Raise UsageError unless a transactional channel is in a transaction."""
        if self._mode is Mode.TX:
            if self._transaction is None:
                raise UsageError("this channel is transactional: do this within a transaction")
            if self._transaction.error is not None:
                raise fresh(self._transaction.error)

    def _break_transaction(self, error: ClientError) -> None:
        if self._transaction is not None and self._transaction.error is None:
            self._transaction.error = error

    def _lose_confirms(self, error: ClientError) -> None:
        for publication in self._confirms.take_all():
            publication.settle(
                ConfirmLost(publication.message, f"not confirmed, perhaps taken: {error}")
            )
            self._confirms.window.release()
