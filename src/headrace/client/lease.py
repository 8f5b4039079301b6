# SPDX-License-Identifier: Apache-2.0
"""Leases: a group takes messages of a queue, by numbers, and can read them repeatedly.

Taken messages move from the queue to a hidden stream, until they are settled or released
(docs/guides/leases.md). Calls are idempotent, so that a call with a lost answer can be repeated.
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

TIMEOUT_S = 30  # Seconds for which an owner without a connection stays the owner.
CLAIM_PAUSE_S = 0.25  # The pause between two attempts to claim a lease that has an owner.
KEEP = "keep"
RELEASE = "release"


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease, as the broker returned it with the last answer."""

    broker: str  # The broker's UUID.
    queue: str
    queue_id: int  # Never given to another queue.
    group: str
    stream: str  # The hidden stream in which the numbers are read.
    id: int  # The stream's id, never reused, not even by a later lease of the same group.
    settled: int  # The lowest number that is neither settled nor released.
    next: int  # The number that the next message taken will have.
    ready: int  # Messages in the queue that could be taken.
    owner: str  # Empty without an owner, or after its timeout.
    timeout_s: int
    on_timeout: str  # "keep" or "release" the taken messages at the owner's timeout.

    @property
    def leased(self) -> int:
        """The number of messages taken and not settled."""
        return self.next - self.settled


class LeaseRange(NamedTuple):
    """The messages of a `take`: the numbers `[first, last)`."""

    stream: str
    first: int
    last: int
    octets: int
    ready: int  # Messages that are left in the queue.


class LeaseSettled(NamedTuple):
    """The positions of a lease after a `settle`."""

    settled: int  # The lowest number that is not settled.
    next: int  # The number that the next leased message gets.
    rejected: int  # The number of messages that became dead letters.


class Lease(AsyncClosing):
    """The lease of a queue for a group, for one owner.

    `owner` is a name of your choice. A process that uses it again after a reconnection or a restart
    is the same owner; the default is a new random name. A lease has one owner at a time: see
    `claim`.
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
        """Use `requests`, or a channel of its own without them.

        When the owner has had no connection for `timeout_s` seconds, others may claim the lease;
        with `on_timeout="release"` its messages then return to the queue.
        """
        self.queue = queue
        self.group = group
        self.owner = owner or uuid.uuid4().hex
        self.timeout_s = timeout_s
        self.on_timeout = on_timeout
        self._connection = connection
        self._requests = requests or Requests(connection)
        self._owns_requests = requests is None
        self._stream = ""
        self._next: int | None = None

    def __repr__(self) -> str:
        return f"<Lease of queue {self.queue!r} for group {self.group!r} by {self.owner!r}>"

    async def claim(self, *, force: bool = False, wait_s: float = 0.0) -> LeaseState:
        """Become the owner; create the lease if it does not exist.

        Raises RequestRefused with code `conflict` while another owner is alive, after trying for
        `wait_s` seconds; `force` takes the lease away. Messages that the last owner took and did
        not settle are the numbers from `settled` to `next`.
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
        state = _parse_state(answer)
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
        """Take up to `messages` messages and `octets` bytes, at least one message if any.

        They get the numbers from `first` on; the default is the end of the last range. If `first`
        is below the broker's `next`, an earlier answer was lost: the call returns the taken
        messages from `first` on, within the limits, and takes no more. An empty queue results in an
        empty range.

        Raises RequestRefused with code `gone` when `first` is settled, `precondition` when it is
        beyond the messages taken.
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
        lease_range = LeaseRange(
            answer["stream"], answer["first"], answer["last"], answer["octets"], answer["ready"]
        )
        self._stream = lease_range.stream
        self._next = lease_range.last
        return lease_range

    def untake(self, lease_range: LeaseRange) -> None:
        """Make the next `take` return this range again: the program did not receive it."""
        self._next = lease_range.first

    async def read(
        self, first: int, last: int, *, batch_max: int = BATCH_MAX, credit: int = CREDIT
    ) -> AsyncGenerator[list[Record], None]:
        """Read the taken messages `[first, last)` in batches; any number of times.

        Any connection may read them, by `connection.stream(range.stream)`. A record's offset is its
        number, and its arrival time is that in the queue; it has the header `x-redelivered` if it
        was delivered before.
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
        """Settle every message below `upto`; `rejects` become dead letters.

        A reject is a number, or a pair (first, last) for `[first, last)`. Settled messages are
        skipped.
        """
        answer = await self._ask(
            "settle",
            owner=self.owner,
            upto=upto,
            rejects=[_encode_numbers(number_or_range) for number_or_range in rejects],
        )
        return LeaseSettled(answer["settled"], answer["next"], answer["rejected"])

    async def reject(self, first: int, last: int, numbers: Iterable[int | tuple[int, int]]) -> None:
        """Reject messages in advance: in the range `[first, last)` exactly `numbers`.

        They become dead letters when they are settled. A later call for a range replaces an earlier
        one. Any reader may call it for the owner of the lease. Raises RequestRefused with code
        `precondition` when the queue has no dead-letter exchange.
        """
        await self._ask(
            "reject",
            owner=self.owner,
            first=first,
            last=last,
            numbers=[_encode_numbers(number_or_range) for number_or_range in numbers],
        )

    async def rejected(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the rejected messages of `[first, last)`, as ranges."""
        answer = await self._ask("rejected", first=first, last=last)
        return [(numbers[0], numbers[1]) for numbers in answer["numbers"]]

    async def release(self, *, force: bool = False, forget: bool = False) -> int:
        """Requeue the messages taken and not settled; return their number.

        They return to their places in the queue, marked redelivered. `force` does it for any owner;
        `forget` also deletes the lease.
        """
        answer = await self._ask("release", owner=self.owner, force=force, forget=forget)
        self._next = None
        return int(answer["released"])

    async def leave(self) -> None:
        """End the ownership; taken messages stay taken, for the group's next owner."""
        await self._ask("leave", owner=self.owner)

    async def info(self) -> LeaseState:
        """Return the lease's state; RequestRefused with code `not-found` if it does not exist."""
        return _parse_state(await self._ask("info"))

    async def close(self) -> None:
        """Close the channel; the lease stays as it is."""
        if self._owns_requests:
            await self._requests.close()

    async def _ask(self, request: str, **fields: object) -> Answer:
        return await self._requests.ask(
            f"lease.{request}", queue=self.queue, group=self.group, **fields
        )


async def list_leases(requests: Requests, queue: str = "") -> list[LeaseState]:
    """Return the leases of a queue, or of all queues that the user may read."""
    fields = {"queue": queue} if queue else {}
    answer = await requests.ask("lease.list", **fields)
    return [_parse_state(lease) for lease in answer["leases"]]


def _encode_numbers(number_or_range: int | tuple[int, int]) -> int | list[int]:
    return list(number_or_range) if isinstance(number_or_range, tuple) else number_or_range


def _parse_state(answer: Answer) -> LeaseState:
    return LeaseState(**{name: answer[name] for name in LeaseState.__slots__})
