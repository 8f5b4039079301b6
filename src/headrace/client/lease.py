# SPDX-License-Identifier: Apache-2.0
"""Leases: a group takes messages of an ordinary queue as numbers that can be read again.

What is taken leaves the queue and stands in a hidden stream, until it is settled or given back;
docs/guides/leases.md tells the life of a lease. Everything here may be asked twice with the effect
of once, so a lost answer is asked for again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.channel.closing import AsyncClosing
from headrace.client.requests import Answer, RequestRefused, Requests
from headrace.client.stream.stream import BATCH_MAX, CREDIT

if TYPE_CHECKING:
    from headrace.client.connection.connection import Connection
    from headrace.client.stream.reader import Record

TIMEOUT_S = 30  # How long an owner whose connection is gone stays the owner.
CLAIM_PAUSE_S = 0.25  # Between two attempts to claim a lease that has an owner.
KEEP = "keep"
RELEASE = "release"


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What a broker tells of a lease."""

    broker: str  # The broker's UUID.
    queue: str
    queue_id: int  # Never given to another queue.
    group: str
    stream: str  # The hidden stream in which the numbers are read.
    id: int  # Of that stream: another lease, even of the same group, has another.
    settled: int  # Every number below it is settled or given back.
    next: int  # The number that the next message taken will have.
    ready: int  # Messages in the queue that could be taken.
    owner: str  # Empty when nobody owns it, or the owner's time is over.
    timeout_s: int
    on_timeout: str  # "keep" or "release": what becomes of the messages when the owner is gone.

    @property
    def leased(self) -> int:
        """How many messages are taken and not settled."""
        return self.next - self.settled


class LeaseRange(NamedTuple):
    """What a take gave: the numbers `[first, last)`."""

    stream: str
    first: int
    last: int
    octets: int
    ready: int  # Messages that are left in the queue.


class LeaseSettled(NamedTuple):
    """What a settle did."""

    settled: int
    next: int
    rejected: int  # How many messages became dead letters by it.


class Lease(AsyncClosing):
    """The lease of a queue for a group, as one owner works on it.

    `owner` is a word of your choice that a process keeps over reconnections and restarts, if it
    wants to be the same owner then; otherwise a new one. One owner at a time: see `claim`.
    """

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
        """`requests` are those to ask with; else the lease opens a channel of its own.

        When the owner's connection is gone for `timeout_s`, others may claim the lease. With
        `on_timeout="release"` its messages return to the queue then.
        """
        self.queue = queue
        self.group = group
        self.owner = owner or uuid.uuid4().hex
        self.timeout_s = timeout_s
        self.on_timeout = on_timeout
        self._connection = connection
        self._requests = requests or Requests(connection)
        self._is_ours = requests is None
        self._stream = ""
        self._next: int | None = None

    def __repr__(self) -> str:
        return f"<Lease of queue {self.queue!r} for group {self.group!r} by {self.owner!r}>"

    async def claim(self, *, force: bool = False, wait_s: float = 0.0) -> LeaseState:
        """Become the owner; the lease is made unless it is there.

        While another owner is alive, RequestRefused with code `conflict`, unless `force` is set;
        with `wait_s` it is tried for so long. What the last owner took and did not settle is
        there: from `settled` to `next`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            try:
                answer = await self._ask(
                    "claim",
                    timeout_s=self.timeout_s,
                    on_timeout=self.on_timeout,
                    force=force,
                    owner=self.owner,
                )
                break
            except RequestRefused as error:
                if error.code != "conflict" or loop.time() >= deadline:
                    raise
            await asyncio.sleep(CLAIM_PAUSE_S)
        state = _state(answer)
        self._stream = state.stream
        self._next = state.next
        return state

    async def take(
        self,
        first: int | None = None,
        *,
        messages: int | None = None,
        octets: int | None = None,
    ) -> LeaseRange:
        """Take up to so many messages, and octets, but at least one message if there is one.

        They get the numbers from `first` on, which is `next` as the caller knows it (without it,
        as this object does). When `first` is below the broker's `next`, what it has from there on
        is the answer, within the same limits, and nothing more is taken; so no answer is ever
        lost. Nothing to take is a range without numbers. RequestRefused has code `gone` when
        `first` is settled, `precondition` when it is beyond what was taken.
        """
        if first is None and self._next is None:
            self._next = (await self.info()).next
        limits = {"messages": messages, "octets": octets}
        answer = await self._ask(
            "take",
            owner=self.owner,
            first=self._next if first is None else first,
            **{name: limit for name, limit in limits.items() if limit is not None},
        )
        taken = LeaseRange(
            answer["stream"], answer["first"], answer["last"], answer["octets"], answer["ready"]
        )
        self._stream = taken.stream
        self._next = taken.last
        return taken

    async def read(
        self, first: int, last: int, *, batch_max: int = BATCH_MAX, credit: int = CREDIT
    ) -> AsyncGenerator[list[Record], None]:
        """The messages `[first, last)`, which were taken, in batches; as often as you like.

        Any connection may read them, through `connection.stream(range.stream)`: this is the same.
        Each record has its number as offset, and when it arrived in the queue; the header
        `x-redelivered` is there if it was delivered before.
        """
        if not self._stream:
            self._stream = (await self.info()).stream
        stream = self._connection.stream(self._stream)
        reading = stream.read(first, last, batch_max=batch_max, credit=credit)
        async with aclosing(reading):
            async for batch in reading:
                yield batch

    async def settle(
        self, upto: int, rejects: Iterable[int | tuple[int, int]] = ()
    ) -> LeaseSettled:
        """Settle every number below `upto`: done with, but for `rejects`, which are dead letters.

        A reject is a number, or a pair (first, last) for those from `first` to before `last`.
        What is settled already is passed over.
        """
        answer = await self._ask(
            "settle", owner=self.owner, upto=upto, rejects=[_listed(item) for item in rejects]
        )
        return LeaseSettled(answer["settled"], answer["next"], answer["rejected"])

    async def reject(self, first: int, last: int, numbers: Iterable[int | tuple[int, int]]) -> None:
        """Reject in advance: of what was taken as `[first, last)`, just these are bad.

        They become dead letters when they are settled. A later verdict on a range takes the place
        of an earlier one. Any reader may do it, except for another owner than that of the lease.
        RequestRefused has code `precondition` when the queue has no dead-letter exchange.
        """
        await self._ask(
            "reject",
            owner=self.owner,
            first=first,
            last=last,
            numbers=[_listed(item) for item in numbers],
        )

    async def rejected(self, first: int, last: int) -> list[tuple[int, int]]:
        """What of `[first, last)` is rejected in advance, as ranges."""
        answer = await self._ask("rejected", first=first, last=last)
        return [(one[0], one[1]) for one in answer["numbers"]]

    async def release(self, *, force: bool = False, forget: bool = False) -> int:
        """Give back what is taken and not settled; return how many messages that are.

        They return to their places in the queue, marked redelivered. `force` does it whoever the
        owner is, `forget` ends the lease.
        """
        answer = await self._ask("release", owner=self.owner, force=force, forget=forget)
        self._next = None
        return int(answer["released"])

    async def leave(self) -> None:
        """Give up the ownership; what is taken stays so, for the next owner of the group."""
        await self._ask("leave", owner=self.owner)

    async def info(self) -> LeaseState:
        """What the broker knows of the lease. RequestRefused `not-found` when there is none."""
        return _state(await self._ask("info"))

    async def close(self) -> None:
        """Close the channel; the lease stays as it is."""
        if self._is_ours:
            await self._requests.close()

    async def _ask(self, what: str, **fields: object) -> Answer:
        return await self._requests.ask(
            f"lease.{what}", queue=self.queue, group=self.group, **fields
        )


async def list_leases(requests: Requests, queue: str = "") -> list[LeaseState]:
    """All leases of queues that the user may read, or those of one queue."""
    fields = {"queue": queue} if queue else {}
    answer = await requests.ask("lease.list", **fields)
    return [_state(found) for found in answer["leases"]]


def _listed(item: int | tuple[int, int]) -> int | list[int]:
    return list(item) if isinstance(item, tuple) else item


def _state(answer: Answer) -> LeaseState:
    return LeaseState(**{name: answer[name] for name in LeaseState.__slots__})
