# SPDX-License-Identifier: Apache-2.0
"""Moving, copying and deleting selected messages of a queue.

A job is one transaction of any size: after a crash all its messages are in the source, or all are
in the target. The job scans the source in slices, between which the event loop serves clients.
Selected messages are withdrawn from the source, so that they are not delivered. If the job fails,
they return to their positions (:mod:`headrace.model.operations.prepared_copies`).

In the target a moved message is new: its redelivery count starts at 0, and the source queue's TTL
does not apply.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.values import as_list
from headrace.model.contents import Content, UnreadableError
from headrace.model.dead_letter_headers import X_DEATH
from headrace.model.errors import (
    AccessRefused,
    IllegalState,
    PreconditionFailed,
    ResourceError,
)
from headrace.model.message import PAGED, PERSISTENT, SCRATCH, Message, copy_message, new_message
from headrace.model.operations.prepared_copies import (
    PreparedCopies,
    SelectedMessage,
    remove_delivery_count,
)
from headrace.model.queue.destination import Consumer
from headrace.model.queue.overflow import OVERFLOW_DROP_HEAD, OVERFLOW_TO_DISK
from headrace.model.queue.queue import Queue
from headrace.model.stream.stream import Stream

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.selector import Selector
    from headrace.model.stream.log import StreamRecord

MESSAGES_MAX = 1_000_000  # Default limit of one job.
BATCH_MAX = 256  # Messages of one batch.
BATCH_BYTES_MAX = 256 << 10  # Bytes of bodies after which a batch is full.
READ_SIZE = 48 << 10  # Bytes scanned in one turn.
LOOKS_MAX = 192  # Messages scanned in one turn.
BEHIND_MAX = 32  # The most batches that wait for the disk.
RETURNED_MAX = 1000  # Returned messages scanned in one turn.
REASONS_MAX = 100  # Reasons counted separately.
OTHER_REASON = "for other reasons"
UNREADABLE = "it cannot be read"

CHOOSING = "choosing"  # State of a job that still scans.
MOVING = "moving"  # State of a job that is decided, while it enqueues the copies.
DONE = "done"

#: Returns the target queue of a message, or the reason for which the message stays.
Target = Callable[[Content], "Queue | str"]
Facts = Mapping[bytes, bytes | None]


class MoveResult(NamedTuple):
    """The counts of a job so far; final once the job has ended."""

    looked: int  # Messages scanned.
    selected: int  # Messages that the selector accepts.
    done: int  # Moved, copied or deleted.
    skipped: dict[str, int]  # Selected messages that stay, by reason.
    to: dict[str, int]  # Counts by target queue; planned ones in a dry run.
    next: int  # The position to continue from.
    last: int  # The last position of the job.

    @property
    def complete(self) -> bool:
        """True if the whole range was scanned."""
        return self.next >= self.last


class Job:
    """A job: moves, copies or deletes selected messages of a queue."""

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
        maximum: int = MESSAGES_MAX,
    ) -> None:
        """Without ``target`` messages are deleted; with ``keeps`` the source keeps its messages.

        ``first`` and ``last`` are positions (offsets of a stream); ``last`` defaults to the current
        end. ``count`` bounds the selected messages; if more than ``maximum`` are selected, the job
        fails. With ``dry`` nothing is changed.

        Raises:
            PreconditionFailed: the source is a stream and messages would be removed.
            AccessRefused: a queue is the broker's own.
        """
        for queue in (source, target):
            if isinstance(queue, Queue) and queue.is_hidden:
                raise AccessRefused(f"queue '{queue.name}' is the broker's own")
        if isinstance(source, Stream) and not keeps:
            raise PreconditionFailed(
                f"queue '{source.name}' is a stream, from which messages cannot be removed"
            )
        self.vhost = vhost
        self.source = source
        self.state = CHOOSING
        self._target = target
        self._keeps = keeps
        self._selector = selector
        self._count = count
        self._dry = dry
        self._maximum = maximum
        self._whole = selector is None and count is None and last is None and not first
        end = vhost.counters.next_seq
        if isinstance(source, Stream):
            first = max(first, source.log.first_offset)
            end = source.log.committed_offset
        else:
            first = max(first, min(source.ready.first_position(source.counters.next_seq), end))
        self._first = self._next = first
        self._last = end if last is None else min(last, end)
        self._returned: list[Message] = []
        if not isinstance(source, Stream):
            self._returned = source.ready.requeued_between(first, self._last)
        self._holder = Consumer(source, "", False)
        self._copies = PreparedCopies(vhost, source, self._holder)
        self._batch: list[SelectedMessage] = []
        self._batch_size = 0
        self._written: deque[int] = deque()  # Log positions of the latest batches.
        self._target_rooms: dict[Queue, TargetRoom] = {}
        self._looked = self._selected = self._done = 0
        self._skipped: dict[str, int] = {}
        self._to: dict[str, int] = {}
        self._cancelled = ""

    def cancel(self, reason: str) -> None:
        """Cancel the job, unless it is decided; ``reason`` begins the error text."""
        self._cancelled = self._cancelled or reason

    def run(
        self, remember: Callable[[MoveResult], Facts] | None = None
    ) -> Generator[None, None, MoveResult]:
        """Run the job in steps; return the result.

        ``remember`` returns the facts to change in the transaction of the job.

        Raises:
            ResourceError: the job is too large, or disk or target are full; nothing was done.
            PreconditionFailed: a queue was deleted; nothing was done.
            IllegalState: the job was cancelled; nothing was done.
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
            yield  # A crash could undo a delivery before the sync.
        yield from self._copies.show()
        self.state = DONE
        return self.outcome()

    def outcome(self) -> MoveResult:
        """Return the result so far."""
        return MoveResult(
            self._looked,
            self._selected,
            self._done,
            dict(self._skipped),
            dict(self._to),
            self._next,
            self._last,
        )

    def progress(self) -> dict[str, object]:
        """Return the state, counts and positions of the job for operators."""
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
                self._select(message)
            yield
            self._check()
            while len(self._written) > BEHIND_MAX:
                if store.synced >= self._written[0]:
                    self._written.popleft()
                    continue
                yield
                self._check()

    def _check_size(self, count: int) -> None:
        if count > self._maximum and not self._dry:
            raise ResourceError(
                f"more than {self._maximum} messages are selected, the maximum of one job "
                "(job_messages_max); nothing was changed. Select fewer: --selector, --limit"
            )

    def _check(self) -> None:
        """Raise an error if the job is cancelled or too large, or a queue is deleted."""
        if self._cancelled:
            raise IllegalState(f"{self._cancelled}; nothing was changed")
        for queue in (self.source, *self._target_rooms):
            if queue.deleted:
                raise PreconditionFailed(
                    f"queue '{queue.name}' was deleted meanwhile; nothing was changed"
                )
        for room in self._target_rooms.values():
            room.check()

    def _read(self) -> list[Message]:
        """Return the next messages to scan, in order of position."""
        source = self.source
        if isinstance(source, Stream):
            entries = source.log.read(self._next, READ_SIZE)
            messages = [record_message(entry) for entry in entries if entry[0] < self._last]
            if not messages:
                self._next = self._last
            return messages
        index = bisect_left(self._returned, self._next, key=message_seq)
        returned = self._returned[index : index + RETURNED_MAX]
        last = self._last
        if index + RETURNED_MAX < len(self._returned):
            last = returned[-1].seq + 1
        messages = source.ready.peek(self._next, last, READ_SIZE, returned)
        if not messages:
            self._next = last
        return messages[:LOOKS_MAX]

    def _select(self, message: Message) -> None:
        """Withdraw a message if it is selected."""
        self._looked += 1
        queued = not isinstance(self.source, Stream)
        if queued and message.deadline_ms and message.deadline_ms <= self.vhost.counters.now_ms:
            return
        paged = not queued or bool(message.flags & PAGED)
        loaded: Message | None = message
        if self._selector is not None or self._target is not None:
            loaded = load_copy(self.vhost, message)
        if loaded is None:
            self._skip(UNREADABLE)
            return
        contents = self.vhost.contents
        selector = self._selector
        if selector and not (contents and selector.matches(contents.values(loaded))):
            return
        self._selected += 1
        self._check_size(self._selected)
        try:
            content = self._content(message, loaded)
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
        withdraws = not self._dry and not self._keeps
        if withdraws and not self.source.acquire_quietly(message, self._holder):
            self._skip("another consumer has it")
            return
        self._count_done(target)
        copy = None
        lasting = content is None or content.persistent
        if target is not None:
            copy = copy_message(loaded)
            if message.deliveries:
                remove_delivery_count(self.vhost, copy)
            if content is None or content.expiration is None:
                copy.deadline_ms = 0  # The deadline came from the source queue's TTL.
            if not queued and content is not None:
                copy.priority = content.priority  # Streams have no priorities.
            self._target_rooms.setdefault(target, TargetRoom(target)).add(copy)
            lasting = lasting or target.is_stream
        if self._dry:
            return
        self._batch.append(
            SelectedMessage(None if self._keeps else message, copy, target, lasting, paged)
        )
        self._batch_size += message.body_size
        if len(self._batch) >= BATCH_MAX or self._batch_size >= BATCH_BYTES_MAX:
            self._flush()

    def _content(self, message: Message, loaded: Message) -> Content | None:
        """Return a message's headers and properties; None if nothing depends on them.

        Raises:
            UnreadableError: the message is malformed.
        """
        if self._target is None:
            return None
        kept = message.flags & PERSISTENT and not message.flags & SCRATCH
        if isinstance(self._target, Queue) and kept and not message.deadline_ms:
            return None
        if self.vhost.contents is None:
            raise UnreadableError("no module can read it")
        return self.vhost.contents.read(loaded)

    def _skip(self, reason: str) -> None:
        if reason not in self._skipped and len(self._skipped) >= REASONS_MAX:
            reason = OTHER_REASON
        self._skipped[reason] = self._skipped.get(reason, 0) + 1

    def _count_done(self, target: Queue | None) -> None:
        self._done += 1
        if target is not None:
            self._to[target.name] = self._to.get(target.name, 0) + 1

    def _flush(self) -> None:
        """Prepare the batch of selected messages.

        Raises:
            ResourceError: disk or target are full.
        """
        if not self._batch:
            return
        if self._target is not None:
            if self.vhost.store.full:
                raise ResourceError("the disk is full; nothing was changed")
            for room in self._target_rooms.values():
                room.check()
        batch, self._batch, self._batch_size = self._batch, [], 0
        self._copies.prepare(batch)
        self._written.append(self.vhost.store.appended)
        for selected in batch:
            if selected.queue is not None:
                self._target_rooms[selected.queue].prepared += 1

    def _undo(self) -> Generator[None, None, None]:
        """Return the selected messages to the source, and drop their copies."""
        batch, self._batch = self._batch, []
        yield from self._copies.undo()
        for selected in batch:
            if selected.source is not None:
                self._copies.return_to_source(selected.source)
        self.source.drain()


class TargetRoom:
    """The room that a job needs in one target queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.messages = 0
        self.size = 0
        self.prepared = 0  # Messages that the queue counts as pending.

    def add(self, message: Message) -> None:
        """Count the room for one more message."""
        self.messages += 1
        self.size += message.body_size

    def check(self) -> None:
        """Refuse messages that the queue would reject.

        Raises:
            ResourceError: the queue has no room for all.
        """
        queue = self.queue
        limits = queue.limits
        if limits is None or limits.policy in (OVERFLOW_DROP_HEAD, OVERFLOW_TO_DISK):
            return
        messages = limits.length(queue) + queue.pending_count - self.prepared + self.messages
        size = limits.bytes(queue) + self.size
        if 0 <= limits.max_length < messages or 0 <= limits.max_length_bytes < size:
            raise ResourceError(
                f"queue '{queue.name}' has no room for {self.messages} more messages; "
                "nothing was changed"
            )


def load_copy(vhost: Host, message: Message) -> Message | None:
    """Return a message in memory: itself, or a loaded copy if it is paged out.

    Return None if the message cannot be read.
    """
    if not message.flags & PAGED:
        return message if message.data is not None else None
    store = vhost.store
    try:
        store.load(message)
    except OSError:
        return None
    message_copy = new_message(message.data, message.address_len, message.body_size)
    message_copy.parts = message.parts
    message_copy.flags = message.flags
    for name in ("seq", "priority", "deadline_ms", "publisher", "deliveries"):
        setattr(message_copy, name, getattr(message, name))
    store.page_out(message)
    return message_copy


def message_seq(message: Message) -> int:
    """Return the position of a message, as a sort key."""
    return message.seq


def record_message(entry: StreamRecord) -> Message:
    """Return the record of a stream as a message."""
    message = new_message(entry[1], entry[2], entry[3])
    message.seq = entry[0]
    return message


def make_origin_target(vhost: Host, may_write: Callable[[str], bool]) -> Target:
    """Return a target that sends dead letters back to the queue in which they died last.

    ``may_write`` returns True if the user may write to a queue.
    """

    def origin(content: Content) -> Queue | str:
        deaths: object = as_list(content.headers.get(X_DEATH))
        last = deaths[0] if isinstance(deaths, list) and deaths else None
        name = last.get("queue") if isinstance(last, dict) else None
        if not isinstance(name, str):
            return "no x-death header names a queue"
        queue = vhost.queues.get(name)
        if queue is None or queue.is_hidden or queue.exclusive_owner is not None:
            return f"queue '{name}' no longer exists"
        if not may_write(name):
            return f"write access to queue '{name}' refused"
        return queue

    return origin
