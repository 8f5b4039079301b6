# SPDX-License-Identifier: Apache-2.0
"""The client for programs without asyncio: the same calls, and they block.

The asyncio client runs on a thread of its own, one for all connections of the process. So
heartbeats go out while the program computes, and a consumer's messages are already here when it
asks for the next. Everything may be used from any thread. `timeout_s` of `connect` bounds calls.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headrace.client import batch as _batch
from headrace.client import channel as _channel
from headrace.client import connection as _connection
from headrace.client import consumer as _consumer
from headrace.client import session as _session
from headrace.client import stream as _stream
from headrace.client.background import LOOP, SETTLEMENTS, Closing, Result
from headrace.client.channel import PREFETCH, UNCONFIRMED_MAX
from headrace.client.connection import RECONNECT
from headrace.client.errors import Returned, UsageError
from headrace.client.gather import BLOCK_RECORDS_MAX, Block
from headrace.client.intake import HELD_MAX, HIGH_WATER
from headrace.client.message import Content, Received
from headrace.client.session import UNLIMITED, Transfer
from headrace.client.stream import BATCH_MAX, CREDIT, Measure, Record
from headrace.spec.reply_0_10 import RejectCode

if TYPE_CHECKING:
    from headrace.client.declare import Arguments, QueueState
    from headrace.client.events import Event
    from headrace.client.native import Arrived
    from headrace.client.reconnect import Reconnect
    from headrace.protocol.codec_0_10 import (
        Command,
        ExchangeBoundResult,
        ExchangeQueryResult,
        QueueQueryResult,
        Struct,
        Xid,
    )
    from headrace.protocol.codec_0_x import MethodBase, PropertiesBase
    from headrace.spec.reply_0_10 import FlowMode, XaStatus
    from headrace.spec.tables import Version
    from headrace.wire.table import Value

T = TypeVar("T")

_CHUNK = 500  # Messages of publish_many handed to the loop at once.
_TAKE = 500  # Deliveries fetched from the loop at once.


@dataclass(slots=True, eq=False)
class Delivery(Received):
    """A received message that wants to be settled, unless it was consumed with `no_ack`."""

    source: _consumer.Delivery = field(kw_only=True, repr=False)
    settled: bool = field(default=False, kw_only=True)  # Or consumed with `no_ack`.

    def ack(self, *, multiple: bool = False) -> bool:
        """Done with it; with `multiple`, and with all before it on this channel.

        False when the connection that delivered it is gone: the broker will deliver it again.
        """
        return self._settle(ack=True, multiple=multiple, requeue=False)

    def nack(self, *, requeue: bool = True, multiple: bool = False) -> bool:
        """Not done with it: back to the queue, or else to the dead-letter exchange if any."""
        return self._settle(ack=False, multiple=multiple, requeue=requeue)

    def reject(self, *, requeue: bool = False) -> bool:
        """Never to be done by this program: dead-letter or drop it, or back to the queue."""
        return self._settle(ack=False, multiple=False, requeue=requeue)

    @contextmanager
    def process(self, *, requeue: bool = False) -> Iterator[Self]:
        """Ack at the end of the block; reject when an exception leaves it (and pass that on)."""
        try:
            yield self
        except BaseException:
            if not self.settled:
                self.reject(requeue=requeue)
            raise
        if not self.settled:
            self.ack()

    def _settle(self, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        if self.settled:
            raise UsageError(f"delivery {self.delivery_tag} is settled already, or no_ack")
        if not self.source.is_current():
            return False
        self.settled = True
        SETTLEMENTS.add(self.source, ack, multiple, requeue)
        return True


_FIELDS = tuple(one.name for one in fields(Received))


def _deliver(source: _consumer.Delivery) -> Delivery:
    values = {name: getattr(source, name) for name in _FIELDS}
    return Delivery(**values, source=source, settled=source.settled)


class Consumer:
    """Messages of one queue. Iterate over it; `with` cancels it when the block ends.

    It survives reconnections: what was delivered and not settled comes again, redelivered.
    """

    def __init__(self, source: _consumer.Consumer) -> None:
        self._source = source
        self._here: deque[_consumer.Delivery] = deque()

    def __enter__(self) -> Self:
        LOOP.run(self._source.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        return self._next(None)

    @property
    def queue(self) -> str:
        """The queue it takes from."""
        return self._source.queue

    @property
    def tag(self) -> str:
        """Its consumer tag."""
        return self._source.tag

    def receive(self, timeout_s: float | None = None) -> Delivery:
        """The next message; TimeoutError when none comes in time."""
        try:
            return self._next(timeout_s)
        except StopIteration:
            raise UsageError(f"consumer {self.tag!r} was cancelled by this program") from None

    def cancel(self) -> None:
        """Ask for no more; what was not handed out goes back to the queue. Iteration ends."""
        unwanted = list(self._here)
        self._here.clear()

        async def cancel() -> None:
            self._source.channel.put_back(unwanted)
            await self._source.cancel()

        LOOP.run(cancel())

    def _next(self, timeout_s: float | None) -> Delivery:
        while True:
            while self._here:
                source = self._here.popleft()
                # Of a lost connection: it comes again. Without acks it would not.
                if source.is_current() or source.settled:
                    return _deliver(source)
            taken = LOOP.run(self._take(timeout_s))
            if not taken:
                raise StopIteration
            self._here.extend(taken)

    async def _take(self, timeout_s: float | None) -> list[_consumer.Delivery]:
        """As `take`, where the end is an empty list: a StopAsyncIteration cannot cross threads."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._source.take(_TAKE)
        except StopAsyncIteration:
            return []
        except TimeoutError:
            raise TimeoutError(f"no message within {timeout_s} s") from None


class Confirmation:
    """The outcome of a publish that is under way."""

    def __init__(self, source: asyncio.Future[None], timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    @property
    def is_known(self) -> bool:
        """Whether the broker has answered."""
        return self._source.done()

    def wait(self) -> None:
        """Wait for the broker's confirm; raise what `publish` would raise."""

        async def wait() -> None:
            await asyncio.shield(self._source)

        LOOP.run(wait(), self._timeout_s)


class Transaction:
    """`with channel.transaction():` commits at the end, rolls back when an exception leaves."""

    def __init__(self, source: _batch.Transaction, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    @property
    def returned(self) -> list[Returned]:
        """Mandatory messages that no queue got; the first is raised after the commit."""
        return self._source.returned

    def __enter__(self) -> Self:
        LOOP.run(self._source.__aenter__(), self._timeout_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        LOOP.run(self._source.__aexit__(kind, error, traceback), self._timeout_s)


class Channel(Closing):
    """One channel of a connection. After a reconnection it is open again, as it was."""

    def __init__(self, source: _channel.Channel, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def number(self) -> int:
        """Its number on the wire."""
        return self._source.number

    @property
    def is_closed(self) -> bool:
        """Whether the channel is closed for good."""
        return self._source.is_closed

    def close(self) -> None:
        """Close the channel. Unconfirmed publishes fail, unsettled deliveries go back."""
        self._run(self._source.close())

    # --- Exchanges and queues -----------------------------------------------------------------

    def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        """Make sure that the exchange exists, as described; `passive` only asks."""
        self._run(
            self._source.declare_exchange(
                name,
                kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                passive=passive,
                arguments=arguments,
            )
        )

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete the exchange."""
        self._run(self._source.delete_exchange(name, if_unused=if_unused))

    def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: Arguments | None = None,
    ) -> QueueState:
        """Make sure that the queue exists, as described; `passive` only asks; "" has one named."""
        return self._run(
            self._source.declare_queue(
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                passive=passive,
                arguments=arguments,
            )
        )

    def delete_queue(self, name: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete the queue; return how many messages went with it."""
        return self._run(self._source.delete_queue(name, if_unused=if_unused, if_empty=if_empty))

    def purge_queue(self, name: str) -> int:
        """Drop the ready messages of the queue; return how many."""
        return self._run(self._source.purge_queue(name))

    def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Have the exchange route to the queue."""
        self._run(self._source.bind_queue(queue, exchange, routing_key, arguments))

    def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments | None = None
    ) -> None:
        """Take a binding back."""
        self._run(self._source.unbind_queue(queue, exchange, routing_key, arguments))

    def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Have the exchange `source` route to the exchange `destination`."""
        self._run(self._source.bind_exchange(destination, source, routing_key, arguments))

    def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
    ) -> None:
        """Take a binding between exchanges back."""
        self._run(self._source.unbind_exchange(destination, source, routing_key, arguments))

    # --- Publishing ---------------------------------------------------------------------------

    def publish(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish and wait until the broker has taken it over.

        Without an exchange the routing key is the name of a queue. Raises Nacked, ConfirmLost, and
        with `mandatory` Returned when no queue got it. In a transaction it does not wait.
        """
        self._run(self._source.publish(message, routing_key, exchange, mandatory=mandatory))

    def publish_soon(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> Confirmation:
        """Publish and return without waiting for the confirm, to have many in flight."""
        confirmed = self._run(
            self._source.publish_soon(message, routing_key, exchange, mandatory=mandatory)
        )
        return Confirmation(confirmed, self._timeout_s)

    def publish_many(
        self,
        messages: Iterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish them all, many in flight, and wait for all confirms; return how many.

        The first failure is raised, after the outcome of every message sent so far is known.
        """

        async def begin() -> _batch.Batch:
            return _batch.Batch(self._source, routing_key, exchange, mandatory=mandatory)

        async def add(batch: _batch.Batch, chunk: list[Content]) -> None:
            for message in chunk:
                await batch.add(message)

        batch = self._run(begin())
        rest = iter(messages)
        while batch.failure is None and (chunk := list(islice(rest, _CHUNK))):
            self._run(add(batch, chunk))
        return self._run(batch.finish())

    def transaction(self) -> Transaction:
        """A block whose publishes and acks take effect together when it ends, or not at all."""
        return Transaction(self._source.transaction(), self._timeout_s)

    # --- Receiving ----------------------------------------------------------------------------

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Fetch one message, None when the queue is empty."""
        source = self._run(self._source.get(queue, no_ack=no_ack))
        return None if source is None else _deliver(source)

    def consume(
        self,
        queue: str,
        *,
        prefetch: int = PREFETCH,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int | None = None,
        tag: str = "",
        arguments: Arguments | None = None,
        distinct: int = 0,
    ) -> Consumer:
        """The messages of the queue, to iterate over; at most `prefetch` (0: any) unsettled.

        With `distinct` a message whose id is that of one of the last so many that were acked is
        acked too and not handed out.
        """

        async def consume() -> _consumer.Consumer:
            return self._source.consume(
                queue,
                prefetch=prefetch,
                no_ack=no_ack,
                exclusive=exclusive,
                priority=priority,
                tag=tag,
                arguments=arguments,
                distinct=distinct,
            )

        return Consumer(self._run(consume()))

    def qos(self, count: int = 0, *, size: int = 0, shared: bool = True) -> None:
        """Bound what all consumers (`shared`), or each new one, may have unsettled."""
        self._run(self._source.qos(count, size=size, shared=shared))

    def recover(self, *, requeue: bool = True) -> None:
        """Have the broker deliver everything unsettled on this channel again."""
        self._run(self._source.recover(requeue=requeue))

    # --- What only one version has ------------------------------------------------------------

    @property
    def source(self) -> _channel.Channel:
        """The asyncio channel that does the work, on the client's own thread."""
        return self._source

    def call(
        self, method: MethodBase, *, properties: PropertiesBase | None = None, body: bytes = b""
    ) -> MethodBase:
        """Send any method of this version and return the broker's answer to it."""
        return self._run(self._source.call(method, properties=properties, body=body))

    def send(
        self, method: MethodBase, *, properties: PropertiesBase | None = None, body: bytes = b""
    ) -> None:
        """Send any method of this version without waiting for an answer."""
        self._run(self._source.send(method, properties=properties, body=body))

    def next_method(self) -> Arrived:
        """The next method of the classes file, stream, message, tunnel or test, unasked for."""
        return self._run(self._source.next_method())

    def request_access(
        self,
        realm: str = "/data",
        *,
        exclusive: bool = False,
        passive: bool = False,
        active: bool = True,
        write: bool = True,
        read: bool = True,
    ) -> int:
        """Ask for a ticket for a realm (0-8 and 0-9); it goes with all that follows here."""
        return self._run(
            self._source.request_access(
                realm,
                exclusive=exclusive,
                passive=passive,
                active=active,
                write=write,
                read=read,
            )
        )

    def _run(self, work: Coroutine[object, None, Result]) -> Result:
        return LOOP.run(work, self._timeout_s)


class Stream:
    """A stream of a connection; get one with `connection.stream(name)`."""

    def __init__(self, source: _stream.Stream, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._source.name

    def first_offset(self) -> int:
        """The offset of the oldest record that is kept; that of the next one when none is."""
        return LOOP.run(self._source.first_offset(), self._timeout_s)

    def last_offset(self) -> int:
        """The end of what is committed: the offset that the next record will have."""
        return LOOP.run(self._source.last_offset(), self._timeout_s)

    def offset_at(self, moment: datetime) -> int:
        """The offset of the first record that arrived at `moment` or later, or the end."""
        return LOOP.run(self._source.offset_at(moment), self._timeout_s)

    def measure(
        self,
        first: int,
        last: int | None = None,
        *,
        records_max: int | None = None,
        octets_max: int | None = None,
    ) -> Measure:
        """How many records and octets [first, last) has, or as much as the limits allow.

        OffsetGone when `first` is no longer kept; UsageError when the broker is no Headrace.
        """
        measuring = self._source.measure(
            first, last, records_max=records_max, octets_max=octets_max
        )
        return LOOP.run(measuring, self._timeout_s)

    def read(
        self,
        first: int,
        last: int,
        *,
        batch_max: int = BATCH_MAX,
        credit: int = CREDIT,
        filter: str | Iterable[str] | None = None,  # noqa: A002 - what everybody calls it
        match_unfiltered: bool = False,
    ) -> Iterator[list[Record]]:
        """The records of [first, last) in order, in batches of up to `batch_max`.

        With a `filter` only those that were published with one of these filter values, and with
        `match_unfiltered` those without any as well. OffsetGone when `first` is no longer kept.
        Waits for records that are not yet there, for each batch at most the `timeout_s` of the
        connection.
        """
        return self._each(
            self._source.read(
                first,
                last,
                batch_max=batch_max,
                credit=credit,
                filter=filter,
                match_unfiltered=match_unfiltered,
            )
        )

    def read_blocks(
        self,
        first: int,
        last: int,
        *,
        records_max: int = BLOCK_RECORDS_MAX,
        credit: int = CREDIT,
        filter: str | Sequence[str] | None = None,  # noqa: A002 - what everybody calls it
        match_unfiltered: bool = False,
        browse: bool = False,
    ) -> Iterator[Block]:
        """The records of [first, last) in order, in blocks of `records_max` but for the last.

        As `read`, for very many records: a block keeps them in columns.
        """
        return self._each(
            self._source.read_blocks(
                first,
                last,
                records_max=records_max,
                credit=credit,
                filter=filter,
                match_unfiltered=match_unfiltered,
                browse=browse,
            )
        )

    def _each(self, reading: AsyncGenerator[T, None]) -> Iterator[T]:
        turn = asyncio.Lock()  # An interrupted `following` ends before `close` begins.

        async def following() -> T | None:
            async with turn:
                return await anext(reading, None)

        async def close() -> None:
            async with turn:
                await reading.aclose()

        try:
            while (some := LOOP.run(following(), self._timeout_s)) is not None:
                yield some
        finally:
            LOOP.run(close())


class Subscription:
    """Messages of one destination of a session. Iterate over it; `with` cancels it."""

    def __init__(self, source: _session.Subscription, timeout_s: float | None) -> None:
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


class Connection(Closing):
    """A connection to a broker. Make one with `connect`."""

    def __init__(self, source: _connection.Connection, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def source(self) -> _connection.Connection:
        """The asyncio connection that does the work, on the client's own thread."""
        return self._source

    @property
    def address(self) -> str:
        """The URL it is, or was last, connected to, without user and password."""
        return self._source.address

    @property
    def version(self) -> Version:
        """The version of AMQP that it speaks."""
        return self._source.version

    @property
    def is_ready(self) -> bool:
        """Whether it is connected and everything is as before the last reconnection."""
        return self._source.is_ready

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good."""
        return self._source.is_closed

    @property
    def blocked(self) -> str | None:
        """Why the broker does not read what is published now; None when it does."""
        return self._source.blocked

    @property
    def server_properties(self) -> Mapping[str, Value]:
        """What the broker said about itself."""
        return self._source.server_properties

    def channel(
        self,
        *,
        confirm: bool = True,
        unconfirmed_max: int = UNCONFIRMED_MAX,
        retry_lost: bool = False,
        on_return: Callable[[Returned], None] | None = None,
    ) -> Channel:
        """Open a channel; `with` closes it.

        `confirm=False` publishes without waiting; returned messages then go to `on_return`.
        `retry_lost` publishes again what a lost connection left unconfirmed, perhaps twice.
        """

        async def open_channel() -> _channel.Channel:
            return await self._source.channel(
                confirm=confirm,
                unconfirmed_max=unconfirmed_max,
                retry_lost=retry_lost,
                on_return=on_return,
            )

        return Channel(LOOP.run(open_channel(), self._timeout_s), self._timeout_s)

    def session(
        self, name: str | bytes = "", *, timeout_s: int | None = 0, force: bool = False
    ) -> Session:
        """A session of AMQP 0-10, attached; `with` closes it.

        The broker keeps it for `timeout_s` (None: for good) when its connection is lost. `force`
        takes it away from the connection that it is attached to.
        """

        async def open_session() -> _session.Session:
            return await self._source.session(name, timeout_s=timeout_s, force=force)

        return Session(LOOP.run(open_session(), self._timeout_s), self._timeout_s)

    def stream(self, name: str) -> Stream:
        """A stream, to be read by offset."""
        return Stream(self._source.stream(name), self._timeout_s)

    def wait_ready(self) -> None:
        """Wait until the connection is usable, or closed for good."""
        LOOP.run(self._source.ready(), self._timeout_s)

    def update_secret(self, secret: str, reason: str = "") -> None:
        """As for the asyncio connection."""
        LOOP.run(self._source.update_secret(secret, reason), self._timeout_s)

    def close(self) -> None:
        """Close the connection; the broker puts back what was not settled."""
        LOOP.run(self._source.close())


def connect(
    url: str | Sequence[str],
    *,
    timeout_s: float | None = None,
    reconnect: Reconnect | None = RECONNECT,
    ssl_context: ssl.SSLContext | None = None,
    on_event: Callable[[Event], None] | None = None,
    name: str = "",
    high_water: int = HIGH_WATER,
    held_max: int = HELD_MAX,
) -> Connection:
    """Connect to a broker; `with` closes the connection.

    `timeout_s` bounds every call on the connection with a TimeoutError. Callbacks run on the
    client's own thread and must not block. All else is as for the asyncio `connect`.
    """

    async def open_connection() -> _connection.Connection:
        return await _connection.connect(
            url,
            reconnect=reconnect,
            ssl_context=ssl_context,
            on_event=on_event,
            name=name,
            high_water=high_water,
            held_max=held_max,
        )

    return Connection(LOOP.run(open_connection(), timeout_s), timeout_s)
