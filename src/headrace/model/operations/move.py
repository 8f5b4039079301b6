# SPDX-License-Identifier: Apache-2.0
"""Moving, copying and deleting chosen messages of a queue: what an operator asks for.

An errand is one transaction, however many messages it is about: all of them are in the one queue or
in the other, whatever happens to the broker. It looks at the source in slices, and between two the
loop serves others. What it chooses is withdrawn from the source: nobody is given it meanwhile, and
if nothing comes of the errand it is back in its place as if nothing had been
(:mod:`headrace.model.operations.prepared_copies`).

A message stays as it is, but for its place: the moved one is new to its queue, so it was not
delivered before, and the time to live of the queue that it leaves no longer limits it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.values import as_list
from headrace.model.contents import X_DEATH, Content, UnreadableError
from headrace.model.errors import (
    AccessRefused,
    IllegalState,
    PreconditionFailed,
    ResourceError,
)
from headrace.model.message import PAGED, PERSISTENT, SCRATCH, Message, new_message
from headrace.model.operations.prepared_copies import Chosen, Copies, begin_anew
from headrace.model.queue.dispatch import Consumer
from headrace.model.queue.queue import Queue
from headrace.model.queue.retention import OVERFLOW_DROP_HEAD, OVERFLOW_TO_DISK
from headrace.model.stream.stream import Stream

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.selector import Selector

MESSAGES_MAX = 1_000_000  # That one errand is about, unless the setting says otherwise.
BATCH_MAX = 256  # Messages that are written at once,
BATCH_OCTETS_MAX = 256 << 10  # and octets of their bodies, beyond which no more are added.
READ_OCTETS = 48 << 10  # What is looked at in one turn,
LOOKS_MAX = 192  # and how many messages.
BEHIND_MAX = 32  # Batches that wait for the disk, beyond which no more are written.
RETURNED_MAX = 1000  # Messages that came back to the queue, looked at in one turn.
REASONS_MAX = 100  # Reasons why messages stay that are told apart.
OTHER_REASON = "for other reasons"
UNREADABLE = "it cannot be read"

CHOOSING = "choosing"  # What an errand is at.
MOVING = "moving"  # It is decided.
DONE = "done"

#: Where a message goes; a reason why not is a text.
Target = Callable[[Content], "Queue | str"]
Facts = Mapping[bytes, bytes | None]


class Done(NamedTuple):
    """What an errand did."""

    looked: int  # Messages.
    selected: int  # Of which the selector is true, or all.
    done: int  # Moved, copied or deleted.
    skipped: dict[str, int]  # Selected ones that stay, by the reason.
    to: dict[str, int]  # Where they went, by the queue's name; with a dry run, where they would.
    next: int  # The position to go on from,
    last: int  # and where the errand ended.

    @property
    def complete(self) -> bool:
        """Whether there is nothing more to look at."""
        return self.next >= self.last


class Errand:
    """One errand: chosen messages of a queue go elsewhere, or go."""

    def __init__(
        self,
        vhost: Host,
        source: Queue,
        *,
        target: Queue | Target | None,
        keeps: bool = False,
        selector: Selector | None = None,
        count: int | None = None,
        first: int = 0,
        last: int | None = None,
        dry: bool = False,
        most: int = MESSAGES_MAX,
    ) -> None:
        """Without a ``target`` messages are deleted; with ``keeps`` they stay as well.

        ``first`` and ``last`` are positions, of a stream offsets; ``last`` is what comes from now
        on. ``count`` is how many are to be selected at most; if they are more than ``most``,
        nothing is done. With ``dry`` nothing is done either.

        Raises:
            PreconditionFailed: nothing is taken out of a stream.
            AccessRefused: a queue is the broker's own.
        """
        for queue in (source, target):
            if isinstance(queue, Queue) and queue.is_hidden:
                raise AccessRefused(f"queue '{queue.name}' is the broker's own")
        if isinstance(source, Stream) and not keeps:
            raise PreconditionFailed(f"queue '{source.name}' is a stream, from which nothing goes")
        self.vhost = vhost
        self.source = source
        self.state = CHOOSING
        self._target = target
        self._keeps = keeps
        self._selector = selector
        self._count = count
        self._dry = dry
        self._most = most
        self._whole = selector is None and count is None and last is None and not first
        end = vhost.counters.next_seq
        if isinstance(source, Stream):
            first = max(first, source.log.first_offset)
            end = source.log.committed_offset
        else:
            first = max(first, min(source.position_of_first(), end))
        self._first = self._next = first
        self._last = end if last is None else min(last, end)
        self._returned: list[Message] = []
        if not isinstance(source, Stream):
            self._returned = source.returned_within(first, self._last)
        self._holder = Consumer(source, "", False)
        self._copies = Copies(vhost, source, self._holder)
        self._batch: list[Chosen] = []
        self._octets = 0
        self._written: deque[int] = deque()  # Where batches end in the log, of the last ones.
        self._rooms: dict[Queue, Room] = {}
        self._looked = self._selected = self._done = 0
        self._skipped: dict[str, int] = {}
        self._to: dict[str, int] = {}
        self._cancelled = ""

    def cancel(self, why: str) -> None:
        """Let nothing come of it, unless it is decided already."""
        self._cancelled = self._cancelled or why

    def run(self, remember: Callable[[Done], Facts] | None = None) -> Generator[None, None, Done]:
        """Do it, in steps; return what was done.

        ``remember`` gives the facts that are changed with it.

        Raises:
            ResourceError: it is too large, or the disk or a target has no room; nothing was done.
            PreconditionFailed: a queue was deleted, and nothing was done.
            IllegalState: it was cancelled, and nothing was done.
        """
        try:
            yield from self._choose()
            self._flush()
            self._check()
            if not self._dry:
                self._copies.decide({} if remember is None else remember(self.outcome()))
        except GeneratorExit:
            for _ in self._undo():
                pass
            raise
        except Exception:
            yield from self._undo()
            raise
        self.state = MOVING
        store = self.vhost.store
        decided_at = store.appended
        while store.synced < decided_at:
            yield  # Nobody may see what a crash could undo.
        yield from self._copies.show()
        self.state = DONE
        return self.outcome()

    def outcome(self) -> Done:
        """Return what was done, or will have been."""
        return Done(
            self._looked,
            self._selected,
            self._done,
            dict(self._skipped),
            dict(self._to),
            self._next,
            self._last,
        )

    def progress(self) -> dict[str, object]:
        """Return how far it is."""
        return {
            "state": self.state,
            "looked": self._looked,
            "selected": self._selected,
            "done": self._done,
            "shown": self._copies.shown,
            "first": self._first,
            "next": self._next,
            "last": self._last,
        }

    # --- Choosing -----------------------------------------------------------------------------

    def _choose(self) -> Generator[None, None, None]:
        store = self.vhost.store
        if self._whole and not isinstance(self.source, Stream):
            self._check_size(self.source.ready_count)
        while self._next < self._last:
            for message in self._read():
                if self._selected == self._count:
                    return
                self._next = message.seq + 1
                self._look(message)
            yield
            self._check()
            while len(self._written) > BEHIND_MAX:
                if store.synced >= self._written[0]:
                    self._written.popleft()
                    continue
                yield
                self._check()

    def _check_size(self, count: int) -> None:
        if count > self._most and not self._dry:
            raise ResourceError(
                f"more than {self._most} messages are chosen, which is the most for one errand "
                "(errand_messages_max); nothing was changed. Choose fewer: --selector, --limit"
            )

    def _check(self) -> None:
        """Refuse to go on where that makes no sense any more."""
        if self._cancelled:
            raise IllegalState(f"{self._cancelled}; nothing was changed")
        for queue in (self.source, *self._rooms):
            if queue.deleted:
                raise PreconditionFailed(
                    f"queue '{queue.name}' was deleted meanwhile; nothing was changed"
                )
        for room in self._rooms.values():
            room.check()

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
        return found[:LOOKS_MAX]

    def _look(self, message: Message) -> None:
        """Take a message, if it is chosen."""
        self._looked += 1
        queued = not isinstance(self.source, Stream)
        if queued and message.deadline_ms and message.deadline_ms <= self.vhost.counters.now_ms:
            return
        away = not queued or bool(message.flags & PAGED)
        with_data: Message | None = message
        if self._selector is not None or self._target is not None:
            with_data = loaded(self.vhost, message)
        if with_data is None:
            self._skip(UNREADABLE)
            return
        contents = self.vhost.contents
        selector = self._selector
        if selector and not (contents and selector.matches(contents.values(with_data))):
            return
        self._selected += 1
        self._check_size(self._selected)
        try:
            content = self._content(message, with_data)
        except UnreadableError:
            self._skip(UNREADABLE)
            return
        target: Queue | str | None = None
        if isinstance(self._target, Queue):
            target = self._target
        elif self._target is not None:
            assert content is not None
            target = self._target(content)
        if isinstance(target, str):
            self._skip(target)
            return
        takes = not self._dry and not self._keeps
        if takes and not self.source.acquire_quietly(message, self._holder):
            self._skip("somebody else has it")
            return
        self._count_done(target)
        copy = None
        lasting = content is None or content.persistent
        if target is not None:
            copy = with_data.copy()
            if message.deliveries:
                begin_anew(self.vhost, copy)
            if content is None or content.expiration is None:
                copy.deadline_ms = 0  # That was the queue's.
            if not queued and content is not None:
                copy.priority = content.priority  # Which no stream keeps apart.
            self._rooms.setdefault(target, Room(target)).add(copy)
            lasting = lasting or target.is_stream
        if self._dry:
            return
        self._batch.append(Chosen(None if self._keeps else message, copy, target, lasting, away))
        self._octets += message.body_size
        if len(self._batch) >= BATCH_MAX or self._octets >= BATCH_OCTETS_MAX:
            self._flush()

    def _content(self, message: Message, with_data: Message) -> Content | None:
        """Return what a message says of itself, unless nothing depends on it.

        Raises:
            UnreadableError: it cannot be read.
        """
        if self._target is None:
            return None
        kept = message.flags & PERSISTENT and not message.flags & SCRATCH
        if isinstance(self._target, Queue) and kept and not message.deadline_ms:
            return None
        if self.vhost.contents is None:
            raise UnreadableError("there is nobody to read it")
        return self.vhost.contents.read(with_data)

    def _skip(self, reason: str) -> None:
        if reason not in self._skipped and len(self._skipped) >= REASONS_MAX:
            reason = OTHER_REASON
        self._skipped[reason] = self._skipped.get(reason, 0) + 1

    def _count_done(self, target: Queue | None) -> None:
        self._done += 1
        if target is not None:
            self._to[target.name] = self._to.get(target.name, 0) + 1

    def _flush(self) -> None:
        """Prepare what was chosen.

        Raises:
            ResourceError: the disk is full, or a target is.
        """
        if not self._batch:
            return
        if self._target is not None:
            if self.vhost.store.full:
                raise ResourceError("the disk is full; nothing was changed")
            for room in self._rooms.values():
                room.check()
        batch, self._batch, self._octets = self._batch, [], 0
        self._copies.prepare(batch)
        self._written.append(self.vhost.store.appended)
        for chosen in batch:
            if chosen.queue is not None:
                self._rooms[chosen.queue].prepared += 1

    def _undo(self) -> Generator[None, None, None]:
        """Let everything be as it was."""
        batch, self._batch = self._batch, []
        yield from self._copies.undo()
        for chosen in batch:
            if chosen.source is not None:
                self._copies.give_back(chosen.source)
        self.source.drain()


class Room:
    """What a queue needs room for."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.messages = 0
        self.octets = 0
        self.prepared = 0  # Messages that the queue counts as held.

    def add(self, message: Message) -> None:
        """One more."""
        self.messages += 1
        self.octets += message.body_size

    def check(self) -> None:
        """Refuse what the queue would turn away.

        Raises:
            ResourceError: it has no room for all.
        """
        queue = self.queue
        if not queue.limited or queue.overflow in (OVERFLOW_DROP_HEAD, OVERFLOW_TO_DISK):
            return
        messages = queue.length() + queue.pending_count - self.prepared + self.messages
        octets = queue.octets() + self.octets
        if 0 <= queue.max_length < messages or 0 <= queue.max_length_bytes < octets:
            raise ResourceError(
                f"queue '{queue.name}' has no room for {self.messages} more messages; "
                "nothing was changed"
            )


def loaded(vhost: Host, message: Message) -> Message | None:
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


def to_origin(vhost: Host, may: Callable[[str], bool]) -> Target:
    """Dead letters go back to the queue in which they died last.

    ``may`` tells whether the user may write to the queue of a name.
    """

    def origin(content: Content) -> Queue | str:
        deaths: object = as_list(content.headers.get(X_DEATH))
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
