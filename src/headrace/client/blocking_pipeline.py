# SPDX-License-Identifier: Apache-2.0
"""What pipelines need of a broker beside AMQP's methods, for programs without asyncio.

Each class is the blocking twin of the one of the same name in the asyncio client; see there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.client import groups as _groups
from headrace.client import lease as _lease
from headrace.client import requests as _requests
from headrace.client import snapshot as _snapshot
from headrace.client import staging as _staging
from headrace.client import super_streams as _super_streams
from headrace.client.blocking.loop_thread import LOOP
from headrace.client.channel.closing import Closing
from headrace.client.lease import KEEP, TIMEOUT_S, LeaseRange, LeaseSettled, LeaseState
from headrace.client.requests import ANSWER_S, PIPELINE
from headrace.client.stream.stream import BATCH_MAX, CREDIT

if TYPE_CHECKING:
    from headrace.client.blocking import Connection
    from headrace.client.bulk.encode import Octets
    from headrace.client.groups import GroupState, Position
    from headrace.client.message import Content
    from headrace.client.snapshot import Snapshot
    from headrace.client.staging import SinkState, Staged
    from headrace.client.stream.reader import Record
    from headrace.client.super_streams import SuperStream


class Requests(Closing):
    """Asks one queue of a broker. `with`, or `close`, closes its channel."""

    def __init__(
        self, connection: Connection, queue: str = PIPELINE, *, timeout_s: float = ANSWER_S
    ) -> None:
        self._source = _requests.Requests(connection.source, queue, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def source(self) -> _requests.Requests:
        """The asyncio object that does the work, on the client's own thread."""
        return self._source

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Send the request `what` with its fields; return the answer."""
        return LOOP.run(self._source.ask(what, **fields))

    def send(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """As `ask`, with the whole object."""
        return LOOP.run(self._source.send(request))

    def close(self) -> None:
        """Close the channel; requests under way fail."""
        LOOP.run(self._source.close())


class Lease(Closing):
    """The lease of a queue for a group, as one owner works on it."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        group: str,
        *,
        owner: str | None = None,
        timeout_s: int = TIMEOUT_S,
        on_timeout: str = KEEP,
        requests: Requests | None = None,
    ) -> None:
        self._source = _lease.Lease(
            connection.source,
            queue,
            group,
            owner=owner,
            timeout_s=timeout_s,
            on_timeout=on_timeout,
            requests=None if requests is None else requests.source,
        )

    def __repr__(self) -> str:
        return repr(self._source)

    @property
    def owner(self) -> str:
        """Who works on it."""
        return self._source.owner

    def claim(self, *, force: bool = False, wait_s: float = 0.0) -> LeaseState:
        """Become the owner; the lease is made unless it is there."""
        return LOOP.run(self._source.claim(force=force, wait_s=wait_s))

    def take(
        self,
        first: int | None = None,
        *,
        messages: int | None = None,
        octets: int | None = None,
    ) -> LeaseRange:
        """Take messages; they get the numbers from `first` on, which is `next` without it."""
        return LOOP.run(self._source.take(first, messages=messages, octets=octets))

    def read(
        self, first: int, last: int, *, batch_max: int = BATCH_MAX, credit: int = CREDIT
    ) -> Iterator[list[Record]]:
        """The messages `[first, last)`, which were taken, in batches; as often as you like."""
        return _batches(self._source.read(first, last, batch_max=batch_max, credit=credit))

    def settle(self, upto: int, rejects: Iterable[int | tuple[int, int]] = ()) -> LeaseSettled:
        """Settle every number below `upto`; those in `rejects` become dead letters."""
        return LOOP.run(self._source.settle(upto, rejects))

    def reject(self, first: int, last: int, numbers: Iterable[int | tuple[int, int]]) -> None:
        """Reject in advance: of what was taken as `[first, last)`, just these are bad."""
        LOOP.run(self._source.reject(first, last, numbers))

    def rejected(self, first: int, last: int) -> list[tuple[int, int]]:
        """What of `[first, last)` is rejected in advance, as ranges."""
        return LOOP.run(self._source.rejected(first, last))

    def release(self, *, force: bool = False, forget: bool = False) -> int:
        """Give back what is taken and not settled; return how many messages that are."""
        return LOOP.run(self._source.release(force=force, forget=forget))

    def leave(self) -> None:
        """Give up the ownership; what is taken stays so, for the next owner of the group."""
        LOOP.run(self._source.leave())

    def info(self) -> LeaseState:
        """What the broker knows of the lease."""
        return LOOP.run(self._source.info())

    def close(self) -> None:
        """Close the channel; the lease stays as it is."""
        LOOP.run(self._source.close())


def list_leases(requests: Requests, queue: str = "") -> list[LeaseState]:
    """All leases of queues that the user may read, or those of one queue."""
    return LOOP.run(_lease.list_leases(requests.source, queue))


def take_snapshot(requests: Requests, queue: str, parts: int = 1) -> Snapshot:
    """Ask where a queue reaches now; cut it into up to so many parts."""
    return LOOP.run(_snapshot.take_snapshot(requests.source, queue, parts))


def browse(
    connection: Connection,
    queue: str,
    first: int,
    last: int,
    *,
    batch_max: int = BATCH_MAX,
    credit: int = CREDIT,
) -> Iterator[list[Record]]:
    """The messages that are ready at the positions [first, last), in order of these."""
    return _batches(
        _snapshot.browse(connection.source, queue, first, last, batch_max=batch_max, credit=credit)
    )


def _batches(reading: AsyncGenerator[list[Record], None]) -> Iterator[list[Record]]:
    """What an asynchronous generator of batches gives."""
    turn = asyncio.Lock()  # An interrupted `following` ends before `close` begins.

    async def following() -> list[Record]:
        async with turn:
            return await anext(reading, [])

    async def close() -> None:
        async with turn:
            await reading.aclose()

    try:
        while batch := LOOP.run(following()):
            yield batch
    finally:
        LOOP.run(close())


class Groups:
    """The groups of one name, on any streams. Every call raises RequestRefused."""

    def __init__(self, requests: Requests, name: str) -> None:
        self._source = _groups.Groups(requests.source, name)

    @property
    def name(self) -> str:
        """The name of the groups."""
        return self._source.name

    def begin(
        self,
        positions: Mapping[str, Position],
        *,
        pin: bool | None = None,
        ids: Mapping[str, int] | None = None,
    ) -> dict[str, GroupState]:
        """Remember where the group begins in each stream, unless it began there before."""
        return LOOP.run(self._source.begin(positions, pin=pin, ids=ids))

    def commit(
        self,
        positions: Mapping[str, Position],
        *,
        owner: str = "",
        force: bool = False,
        ids: Mapping[str, int] | None = None,
    ) -> dict[str, GroupState]:
        """Move the committed positions forward; `force` moves them anywhere, whoever owns them."""
        return LOOP.run(self._source.commit(positions, owner=owner, force=force, ids=ids))

    def get(self, streams: Iterable[str]) -> dict[str, GroupState]:
        """Where the group stands; code `not-found` when it is not there for one of the streams."""
        return LOOP.run(self._source.get(streams))

    def delete(self, streams: Iterable[str], *, force: bool = False) -> None:
        """Forget the group on these streams; with `force` even while somebody has it."""
        LOOP.run(self._source.delete(streams, force=force))

    def claim(
        self, streams: Iterable[str], owner: str, *, force: bool = False
    ) -> dict[str, GroupState]:
        """Make `owner` the owner, for as long as this connection lasts and a while after."""
        return LOOP.run(self._source.claim(streams, owner, force=force))

    def release(self, streams: Iterable[str], owner: str) -> None:
        """Give the claim up; nothing happens when it is another's."""
        LOOP.run(self._source.release(streams, owner))


def list_groups(requests: Requests, stream: str = "") -> list[GroupState]:
    """All groups of a stream, or of all streams that the user may read."""

    async def collect() -> list[GroupState]:
        return [state async for state in _groups.list_groups(requests.source, stream)]

    return LOOP.run(collect())


def super_stream(requests: Requests, exchange: str) -> SuperStream:
    """The super stream behind an exchange, as it is now."""
    return LOOP.run(_super_streams.super_stream(requests.source, exchange))


def add_partition(requests: Requests, exchange: str, stream: str = "") -> SuperStream:
    """Add one more partition, named `exchange-number` unless `stream` names it."""
    return LOOP.run(_super_streams.add_partition(requests.source, exchange, stream))


def list_super_streams(requests: Requests) -> dict[str, int]:
    """The super streams that the user may read, with their numbers of partitions."""
    return LOOP.run(_super_streams.list_super_streams(requests.source))


class Sink(Closing):
    """The batches of one sink, as their owner sees them."""

    def __init__(
        self, connection: Connection, name: str, *, requests: Requests | None = None
    ) -> None:
        source = None if requests is None else requests.source
        self._source = _staging.Sink(connection.source, name, requests=source)

    @property
    def name(self) -> str:
        """The sink's name."""
        return self._source.name

    @property
    def epoch(self) -> int:
        """What `begin` gave; 0 acts for whoever owns the sink."""
        return self._source.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._source.epoch = epoch

    def begin(self, owner: str, run: str = "", *, force: bool = False) -> SinkState:
        """Own the sink from now on; what earlier runs left undecided is rolled back."""
        return LOOP.run(self._source.begin(owner, run, force=force))

    def state(self) -> SinkState | None:
        """What the broker knows of the sink; None when it knows none of this name."""
        return LOOP.run(self._source.state())

    def last(self) -> int | None:
        """The last committed batch of the owner, if any."""
        return LOOP.run(self._source.last())

    def commit(self, batch: int, staged: Iterable[Staged | str]) -> SinkState:
        """Make the work of these attempts visible, all of it or nothing; give up all others."""
        return LOOP.run(self._source.commit(batch, staged))

    def abort(self, batch: int) -> int:
        """Give up what is prepared for a batch; return how many branches that were."""
        return LOOP.run(self._source.abort(batch))

    def release(self, owner: str) -> None:
        """Another owner may have the sink at once."""
        LOOP.run(self._source.release(owner))

    def close(self) -> None:
        """Close the channel for requests."""
        LOOP.run(self._source.close())


class Stage(Closing):
    """The work of one attempt at one partition of a batch."""

    def __init__(
        self,
        connection: Connection,
        sink: str,
        batch: int,
        partition: int,
        attempt: int,
        *,
        epoch: int = 0,
    ) -> None:
        self._source = _staging.Stage(
            connection.source, sink, batch, partition, attempt, epoch=epoch
        )

    @property
    def messages(self) -> int:
        """How many were published so far."""
        return self._source.messages

    def publish_many(
        self,
        messages: Iterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = True,
    ) -> None:
        """Publish some messages; without an exchange the routing key is the name of a queue."""
        publish = self._source.publish_many(messages, routing_key, exchange, mandatory=mandatory)
        LOOP.run(publish)

    def publish_columns(
        self,
        count: int,
        body: Octets,
        *,
        properties: Octets,
        routing_key: Octets,
        exchange: Octets,
        mandatory: bool = True,
    ) -> None:
        """Publish rows of columns (see `headrace.client.bulk.encode`)."""
        LOOP.run(
            self._source.publish_columns(
                count,
                body,
                properties=properties,
                routing_key=routing_key,
                exchange=exchange,
                mandatory=mandatory,
            )
        )

    def prepare(self) -> Staged:
        """Make what was published survive until it is decided; the stage is over."""
        return LOOP.run(self._source.prepare())

    def close(self) -> None:
        """Give up what is not prepared, and close the stage's connection."""
        LOOP.run(self._source.close())
