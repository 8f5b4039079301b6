# SPDX-License-Identifier: Apache-2.0
"""Moving, copying and deleting chosen messages of a queue: what an operator asks for.

The work is done in batches. Each is one transaction: its messages are in the one queue or in the
other, whatever happens to the broker. Between two the loop serves others, and whoever takes a
message first has it. A message stays as it is, but for its place: the moved one is new to its
queue, so it was not delivered before, and the time to live of the queue that it leaves no longer
limits it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.model.deadletter import X_DEATH, Content, UnreadableError
from headrace.model.errors import AccessRefused, PreconditionFailed, ResourceError
from headrace.model.message import PAGED, Message, new_message
from headrace.model.ready import OVERFLOW_DROP_HEAD
from headrace.model.served import Consumer
from headrace.model.stream import Stream
from headrace.model.work import ACCEPT, Work

if TYPE_CHECKING:
    from headrace.model.queue import Queue
    from headrace.model.selector import Selector
    from headrace.model.vhost import VirtualHost

BATCH_MAX = 1000  # Messages of one transaction,
BATCH_OCTETS_MAX = 1 << 20  # and octets of their bodies, beyond which it is closed.
READ_OCTETS = 65536  # What is looked at in one turn.
LOOKS_MAX = 200_000  # Messages that one errand looks at.

RETURNED_MAX = 1000  # Messages that came back to the queue, looked at in one turn.

#: Where a message goes; a reason why not is a text.
Target = Callable[[Content], "Queue | str"]
Chosen = tuple[Message, "Queue | None", Content]


class Done(NamedTuple):
    """What an errand did."""

    looked: int  # Messages.
    selected: int  # Of which the selector is true, or all.
    done: int  # Moved, copied or deleted.
    skipped: dict[str, int]  # Selected ones that stay, by the reason.
    to: dict[str, int]  # Where they went, by the queue's name; with a dry run, where they would.
    next: int  # The position to go on from,
    last: int  # and where the errand ends.
    stopped: str = ""  # Why it ended before that, if something is in the way.

    @property
    def complete(self) -> bool:
        """Whether there is nothing more to look at."""
        return self.next >= self.last


class Errand:
    """One errand: chosen messages of a queue go elsewhere, or go."""

    def __init__(
        self,
        vhost: VirtualHost,
        source: Queue,
        *,
        target: Target | None,
        keeps: bool = False,
        selector: Selector | None = None,
        count: int = LOOKS_MAX,
        first: int = 0,
        last: int | None = None,
        dry: bool = False,
    ) -> None:
        """Without a ``target`` messages are deleted; with ``keeps`` they stay as well.

        ``first`` and ``last`` are positions, of a stream offsets; ``last`` is what comes from now
        on. ``count`` is how many are to be selected at most. With ``dry`` nothing is done.

        Raises:
            PreconditionFailed: nothing is taken out of a stream.
            AccessRefused: the queue is the broker's own.
        """
        if source.is_hidden:
            raise AccessRefused(f"queue '{source.name}' is the broker's own")
        if isinstance(source, Stream) and not keeps:
            raise PreconditionFailed(f"queue '{source.name}' is a stream, from which nothing goes")
        self.vhost = vhost
        self.source = source
        self._target = target
        self._keeps = keeps
        self._selector = selector
        self._count = count
        self._dry = dry
        end = vhost.tally.next_seq
        if isinstance(source, Stream):
            first = max(first, source.log.first_offset)
            end = source.log.committed_offset
        self._next = first
        self._last = end if last is None else min(last, end)
        self._returned: list[Message] = []
        if not isinstance(source, Stream):
            self._returned = source.returned_within(first, self._last)
        self._holder = Consumer(source, "", False)
        self._batch: list[Chosen] = []
        self._octets = 0
        self._looked = self._selected = self._done = 0
        self._skipped: dict[str, int] = {}
        self._to: dict[str, int] = {}

    def run(self) -> Generator[None, None, Done]:
        """Do it, in steps; return what was done.

        Raises:
            ResourceError: the disk is full, or a target is, and nothing was done.
            PreconditionFailed: a target was deleted, and nothing was done.
        """
        stopped = ""
        try:
            yield from self._go()
        except (ResourceError, PreconditionFailed) as error:
            if not self._done:
                raise
            stopped = error.text
        return Done(
            self._looked,
            self._selected,
            self._done,
            self._skipped,
            self._to,
            self._next,
            self._last,
            stopped,
        )

    def _go(self) -> Generator[None, None, None]:
        while self._next < self._last and self._looked < LOOKS_MAX:
            messages = self._read()
            if not messages:
                continue
            for message in messages:
                if self._selected >= self._count:
                    break
                self._next = message.seq + 1
                self._look(message)
                if len(self._batch) >= BATCH_MAX or self._octets >= BATCH_OCTETS_MAX:
                    self._commit()
                    yield
            if self._selected >= self._count:
                break
            yield
        self._commit()

    def _read(self) -> list[Message]:
        """Return what is next to be looked at, in order of position."""
        source = self.source
        if isinstance(source, Stream):
            entries = source.log.read(self._next, READ_OCTETS)
            found = [record(entry) for entry in entries if entry[0] < self._last]
            if not found:
                self._next = self._last
            return found
        at = bisect_left(self._returned, self._next, key=seq_of)
        returned = self._returned[at : at + RETURNED_MAX]
        last = self._last
        if at + RETURNED_MAX < len(self._returned):
            last = returned[-1].seq + 1
        found = source.peek(self._next, last, READ_OCTETS, returned)
        if not found:
            self._next = last
        return found

    def _look(self, message: Message) -> None:
        """Put a message in the batch if it is chosen."""
        self._looked += 1
        now_ms = self.vhost.tally.now_ms
        queued = not isinstance(self.source, Stream)
        if queued and message.deadline_ms and message.deadline_ms <= now_ms:
            return
        with_data = loaded(self.vhost, message)
        if with_data is None or self.vhost.contents is None:
            self._skip("it cannot be read")
            return
        values = self.vhost.contents.values(with_data)
        if self._selector is not None and not self._selector.matches(values):
            return
        self._selected += 1
        try:
            content = self.vhost.contents.read(with_data)
        except UnreadableError:
            self._skip("it cannot be read")
            return
        target: Queue | str | None = None if self._target is None else self._target(content)
        if isinstance(target, str):
            self._skip(target)
            return
        if self._dry:
            self._count_done(target)
            return
        self._batch.append((message, target, content))
        self._octets += message.body_size

    def _skip(self, reason: str) -> None:
        self._skipped[reason] = self._skipped.get(reason, 0) + 1

    def _count_done(self, target: Queue | None) -> None:
        self._done += 1
        if target is not None:
            self._to[target.name] = self._to.get(target.name, 0) + 1

    def _commit(self) -> None:
        """Do what the batch says, in one transaction."""
        batch, self._batch, self._octets = self._batch, [], 0
        if not batch:
            return
        try:
            self._do(batch)
        except (ResourceError, PreconditionFailed):
            self._next = batch[0][0].seq
            self._selected -= len(batch)
            raise
        self.source.drain()

    def _do(self, batch: list[Chosen]) -> None:
        for room in self._rooms(batch):
            room.check()
        work = Work(self.vhost)
        taken: list[Message] = []
        done: list[Queue | None] = []
        lost = 0
        try:
            for message, target, content in batch:
                with_data = loaded(self.vhost, message)
                if with_data is None or not self._take(message):
                    lost += 1
                    continue
                if not self._keeps:
                    taken.append(message)
                    work.settle(self.source, message, ACCEPT)
                if target is not None:
                    twin = with_data.copy()
                    if content.expiration is None:
                        twin.deadline_ms = 0  # That was the queue's.
                    work.publish(twin, (target,), content.persistent)
                done.append(target)
            work.commit()
        except BaseException:
            work.forget()
            for message in taken:
                if message.consumer is self._holder:
                    self.source.release(message)
            raise
        for target in done:
            self._count_done(target)
        for _ in range(lost):
            self._skip("somebody else has it")

    def _take(self, message: Message) -> bool:
        """Have a message for this errand, if it goes and is there still."""
        if isinstance(self.source, Stream):
            return True
        if self._keeps:
            return message.data is not None or bool(message.flags & PAGED)
        return self.source.withdraw(message, self._holder)

    def _rooms(self, batch: list[Chosen]) -> Iterator[Room]:
        """Give what each target needs."""
        rooms: dict[Queue, Room] = {}
        for message, target, _ in batch:
            if target is not None:
                rooms.setdefault(target, Room(target)).add(message)
        yield from rooms.values()


class Room:
    """What a queue needs room for."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.messages = 0
        self.octets = 0

    def add(self, message: Message) -> None:
        """One more."""
        self.messages += 1
        self.octets += message.body_size

    def check(self) -> None:
        """Refuse what the queue would turn away, all of it.

        Raises:
            ResourceError: it has no room for all.
            PreconditionFailed: it is gone.
        """
        queue = self.queue
        if queue.deleted:
            raise PreconditionFailed(f"queue '{queue.name}' was deleted")
        if not queue.limited or queue.overflow == OVERFLOW_DROP_HEAD:
            return
        messages = queue.ready_count + self.messages
        octets = queue.ready_bytes + self.octets
        if 0 <= queue.max_length < messages or 0 <= queue.max_length_bytes < octets:
            raise ResourceError(
                f"queue '{queue.name}' has no room for {self.messages} more messages"
            )


def loaded(vhost: VirtualHost, message: Message) -> Message | None:
    """Return a message with its data: itself, or a copy of one that is on disk only."""
    if not message.flags & PAGED:
        return message if message.data is not None else None
    store = vhost.store
    try:
        store.load(message)
    except OSError:
        return None
    twin = new_message(message.data, message.address_len, message.body_size)
    twin.parts = message.parts
    twin.flags = message.flags
    for name in ("seq", "priority", "deadline_ms", "publisher", "deliveries"):
        setattr(twin, name, getattr(message, name))
    store.page_out(message)
    return twin


def seq_of(message: Message) -> int:
    """Return the position of a message."""
    return message.seq


def record(entry: tuple[int, bytes, int, int, int]) -> Message:
    """Return a record of a stream as a message."""
    message = new_message(entry[1], entry[2], entry[3])
    message.seq = entry[0]
    return message


def to_one(queue: Queue) -> Target:
    """All messages go to one queue.

    Raises:
        AccessRefused: it is the broker's own.
    """
    if queue.is_hidden:
        raise AccessRefused(f"queue '{queue.name}' is the broker's own")
    return lambda _: queue


def to_origin(vhost: VirtualHost, may: Callable[[str], bool]) -> Target:
    """Dead letters go back to the queue in which they died last.

    ``may`` tells whether the user may write to the queue of a name.
    """

    def origin(content: Content) -> Queue | str:
        deaths: Any = content.headers.get(X_DEATH)
        last = deaths[0] if isinstance(deaths, list) and deaths else None
        name = last.get("queue") if isinstance(last, dict) else None
        if not isinstance(name, str):
            return "it is no dead letter"
        queue = vhost.queues.get(name)
        if queue is None or queue.is_hidden or queue.exclusive_owner is not None:
            return f"there is no queue '{name}' any more"
        if not may(name):
            return f"write access to queue '{name}' refused"
        return queue

    return origin
