# SPDX-License-Identifier: Apache-2.0
"""A session of AMQP 0-10 for programs without asyncio; see

:mod:`headrace.client.session.session`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.client.blocking.loop_thread import LOOP, Result
from headrace.client.channel.closing import Closing
from headrace.client.errors import UsageError
from headrace.client.session.subscription import UNLIMITED, Transfer
from headrace.spec.reply_0_10 import RejectCode

if TYPE_CHECKING:
    from headrace.client.blocking import Connection
    from headrace.client.message import Content
    from headrace.client.session import session as _session
    from headrace.client.session import subscription as _subscription
    from headrace.protocol.codec_0_10 import (
        Command,
        ExchangeBoundResult,
        ExchangeQueryResult,
        QueueQueryResult,
        Struct,
        Xid,
    )
    from headrace.spec.reply_0_10 import FlowMode, XaStatus


class Subscription:
    """Messages of one destination of a session. Iterate over it; `with` cancels it."""

    def __init__(self, source: _subscription.Subscription, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[Transfer]:
        while True:
            try:
                yield LOOP.run(self._source.receive())
            except UsageError:
                return  # It was cancelled by this program.

    @property
    def destination(self) -> str:
        """Its name within the session."""
        return self._source.destination

    def receive(self, timeout_s: float | None = None) -> Transfer:
        """The next message; TimeoutError when none comes in time."""
        return LOOP.run(self._source.receive(timeout_s))

    def receive_nowait(self) -> Transfer | None:
        """The next message that is here, None when there is none."""

        async def receive() -> Transfer | None:
            return self._source.receive_nowait()

        return LOOP.run(receive())

    def set_flow_mode(self, mode: FlowMode) -> None:
        """Choose credit or window; the credit begins at nothing."""
        LOOP.run(self._source.set_flow_mode(mode), self._timeout_s)

    def flow(self, messages: int | None = None, octets: int | None = UNLIMITED) -> None:
        """Add credit; `UNLIMITED` takes the limit away, None adds none of that kind."""
        LOOP.run(self._source.flow(messages, octets), self._timeout_s)

    def flush(self) -> None:
        """Wait until all came that is there and has credit; the credit is used up then."""
        LOOP.run(self._source.flush(), self._timeout_s)

    def stop(self) -> None:
        """Take all credit back; nothing comes when this returns."""
        LOOP.run(self._source.stop(), self._timeout_s)

    def cancel(self) -> None:
        """End the subscription. What came and was not taken is released to its queue."""
        LOOP.run(self._source.cancel(), self._timeout_s)


class Session(Closing):
    """A session of AMQP 0-10; get one with `connection.session(...)`."""

    def __init__(self, source: _session.Session, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def name(self) -> bytes:
        """Its name, by which it can be attached again."""
        return self._source.name

    @property
    def timeout_s(self) -> int | None:
        """How long the broker keeps it when it is detached, in seconds; None for good."""
        return self._source.timeout_s

    @property
    def is_attached(self) -> bool:
        """Whether it has a connection now."""
        return self._source.is_attached

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self._source.is_closed

    def attach(self, connection: Connection, *, force: bool = False) -> None:
        """Attach it to a connection; `force` takes it away from where it is attached."""
        self._run(self._source.attach(connection.source, force=force))

    def detach(self) -> None:
        """Leave the connection. The broker keeps the session for `timeout_s` seconds."""
        self._run(self._source.detach())

    def request_timeout(self, timeout_s: int | None) -> int | None:
        """Ask the broker to keep the session so long when it is detached; what it grants."""
        return self._run(self._source.request_timeout(timeout_s))

    def close(self) -> None:
        """End the session: detach, and keep nothing."""
        self._run(self._source.close())

    def call(
        self, command: Command, *, headers: Sequence[Struct] = (), body: bytes = b""
    ) -> Struct | None:
        """Send any command, wait until it is completed, and return its result if it has one."""
        return self._run(self._source.call(command, headers=headers, body=body))

    def sync(self) -> None:
        """Wait until the broker has completed every command sent so far."""
        self._run(self._source.sync())

    def next_command(self) -> tuple[Command, list[Struct], bytes]:
        """The next command of the broker that is none of the message class: with its content."""
        return self._run(self._source.next_command())

    def transfer(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        accept: bool = True,
        discard_unroutable: bool = True,
        immediate: bool = False,
        extra: Sequence[Struct] = (),
    ) -> None:
        """Send a message and wait until the broker accepts it."""
        self._run(
            self._source.transfer(
                message,
                routing_key,
                exchange,
                accept=accept,
                discard_unroutable=discard_unroutable,
                immediate=immediate,
                extra=extra,
            )
        )

    def subscribe(
        self,
        queue: str,
        destination: str = "",
        *,
        accept: bool = True,
        acquire: bool = True,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        window: bool = False,
    ) -> Subscription:
        """Subscribe to a queue; give credit with `flow` before anything comes."""
        source = self._run(
            self._source.subscribe(
                queue,
                destination,
                accept=accept,
                acquire=acquire,
                exclusive=exclusive,
                arguments=arguments,
                window=window,
            )
        )
        return Subscription(source, self._timeout_s)

    def accept(self, *transfers: Transfer) -> None:
        """Done with these messages."""
        self._run(self._source.accept(*transfers))

    def reject(
        self, *transfers: Transfer, code: RejectCode = RejectCode.UNSPECIFIED, text: str = ""
    ) -> None:
        """Not to be done by anybody: they go to the alternate exchange of their queue."""
        self._run(self._source.reject(*transfers, code=code, text=text))

    def release(self, *transfers: Transfer, set_redelivered: bool = False) -> None:
        """Put them back into their queue."""
        self._run(self._source.release(*transfers, set_redelivered=set_redelivered))

    def acquire(self, *transfers: Transfer) -> list[Transfer]:
        """Take messages that were browsed; those that could be had."""
        return self._run(self._source.acquire(*transfers))

    def query_queue(self, queue: str) -> QueueQueryResult | None:
        """What the broker says of a queue; None when there is none of that name."""
        return self._run(self._source.query_queue(queue))

    def query_exchange(self, name: str) -> ExchangeQueryResult | None:
        """What the broker says of an exchange; None when there is none of that name."""
        return self._run(self._source.query_exchange(name))

    def query_bound(
        self,
        exchange: str = "",
        queue: str | None = None,
        binding_key: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> ExchangeBoundResult:
        """Which of exchange, queue, key and arguments is not there or not bound."""
        return self._run(self._source.query_bound(exchange, queue, binding_key, arguments))

    def tx_select(self) -> None:
        """From now on transfers and settlements wait for a commit."""
        self._run(self._source.tx_select())

    def tx_commit(self) -> None:
        """Have all since the last commit or rollback take effect."""
        self._run(self._source.tx_commit())

    def tx_rollback(self) -> None:
        """Forget all since the last commit or rollback."""
        self._run(self._source.tx_rollback())

    def dtx_select(self) -> None:
        """Use the session for distributed transactions."""
        self._run(self._source.dtx_select())

    def dtx_start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> XaStatus:
        """Begin work for a transaction branch, join it, or go on with it."""
        return self._run(self._source.dtx_start(xid, join=join, resume=resume))

    def dtx_end(self, xid: Xid, *, fail: bool = False, suspend: bool = False) -> XaStatus:
        """End the work for a branch, for now (`suspend`) or as a failure (`fail`)."""
        return self._run(self._source.dtx_end(xid, fail=fail, suspend=suspend))

    def dtx_prepare(self, xid: Xid) -> XaStatus:
        """Have the broker keep a branch so that it can be committed in any case."""
        return self._run(self._source.dtx_prepare(xid))

    def dtx_commit(self, xid: Xid, *, one_phase: bool = False) -> XaStatus:
        """Commit a branch: prepared, or (`one_phase`) ended only."""
        return self._run(self._source.dtx_commit(xid, one_phase=one_phase))

    def dtx_rollback(self, xid: Xid) -> XaStatus:
        """Undo a branch."""
        return self._run(self._source.dtx_rollback(xid))

    def dtx_forget(self, xid: Xid) -> None:
        """Have the broker forget a branch that was decided by heuristics."""
        self._run(self._source.dtx_forget(xid))

    def dtx_recover(self) -> list[Xid]:
        """The branches that are prepared, or were decided by heuristics."""
        return self._run(self._source.dtx_recover())

    def dtx_set_timeout(self, xid: Xid, timeout_s: int) -> None:
        """Have a branch rolled back when it is not prepared in time; 0 is the default again."""
        self._run(self._source.dtx_set_timeout(xid, timeout_s))

    def dtx_get_timeout(self, xid: Xid) -> int:
        """How many seconds a branch has."""
        return self._run(self._source.dtx_get_timeout(xid))

    def _run(self, work: Coroutine[object, None, Result]) -> Result:
        return LOOP.run(work, self._timeout_s)
