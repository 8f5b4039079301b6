# SPDX-License-Identifier: Apache-2.0
"""Looking at what is in a queue without being a consumer of it.

Either from a position on, in order of position, or at all that is ready, in the order in which the
queue would hand it out; or at what is delayed, in the order in which it is due. Nothing is held,
marked, moved or counted, and the queue does not count as used: an operator looks. (Consumers that
look are in :mod:`headrace.model.operations.queue_view`.) Between two steps the loop serves others;
what somebody takes meanwhile is not shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.replay_period import REPLAY, replay_period
from headrace.model.errors import AccessRefused, InvalidArgument, PreconditionFailed
from headrace.model.operations.move import loaded, record, seq_of
from headrace.model.queue.dispatch import Consumer
from headrace.model.queue_kinds.delayed import DelayedQueue
from headrace.model.queue_kinds.grouped import GroupedQueue
from headrace.model.stream.stream import Stream

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.message import Message
    from headrace.model.queue.dispatch import Cursor
    from headrace.model.queue.queue import Queue
    from headrace.model.selector import Selector

OFFSET = "x-stream-offset"  # Of a consumer that looks: the position to begin at.
POSITION_MAX = (1 << 63) - 1
READ_OCTETS = 8192  # What is read in one step,
RETURNED_MAX = 64  # of which so many messages that came back to the queue.


class Shown(NamedTuple):
    """A message that is looked at."""

    message: Message  # In memory; not to be changed.
    arrived_ms: int  # When it arrived, as far as that is known; else 0.
    due_ms: int = 0  # When it will be routed, if it is delayed.


class Onlooker(Consumer):
    """Whose cursor an operator's is; no queue knows him."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, "", True)
        self.browses = True


class Look:
    """Goes over a queue's messages of one content class, or over the records of a stream."""

    def __init__(
        self,
        vhost: Host,
        source: Queue,
        *,
        first: int | None = None,
        selector: Selector | None = None,
    ) -> None:
        """``source`` is a queue or a lane of one; ``first`` is a position, of a stream an offset.

        Without ``first`` it begins with what would be handed out next.

        Raises:
            AccessRefused: the queue is the broker's own.
        """
        if source.is_hidden and not isinstance(source, DelayedQueue):
            raise AccessRefused(f"queue '{source.name}' is the broker's own")
        self._vhost = vhost
        self._source = source
        self._selector = selector
        self._next = first or 0
        self._last = vhost.counters.next_seq
        self._returned: list[Message] = []
        self._cursor: Cursor | None = None
        self._later: Later | None = None
        if isinstance(source, Stream):
            self._next = max(self._next, source.log.first_offset)
            self._last = source.log.committed_offset
        elif first is None:
            self._cursor = source.new_cursor(Onlooker(source))
            if isinstance(source, GroupedQueue):
                self._later = Later(source)
        else:
            self._returned = source.returned_within(first, self._last)

    def run(self) -> Generator[Shown | None, None, None]:
        """Give each message that is there and chosen, and None for one that is not."""
        if isinstance(self._source, DelayedQueue):
            yield from self._delayed(self._source)
            return
        while self._next < self._last and not self._source.deleted:
            for shown in self._read():
                message = shown.message
                chosen = self._selector is None or self._matches(self._selector, message)
                yield shown if chosen else None
            yield None

    def _delayed(self, source: DelayedQueue) -> Generator[Shown | None]:
        for message in source.waiting():
            with_data = None if message is None else loaded(self._vhost, message)
            chosen = self._selector is None
            if with_data is not None and self._selector is not None:
                chosen = self._matches(self._selector, with_data)
            if with_data is None or not chosen:
                yield None
            else:
                yield Shown(with_data, self._arrival(with_data), with_data.deadline_ms)

    def _matches(self, selector: Selector, message: Message) -> bool:
        contents = self._vhost.contents
        return contents is not None and selector.matches(contents.values(message))

    def _read(self) -> list[Shown]:
        """Return what is next, and go behind it."""
        source, last = self._source, self._last
        if isinstance(source, Stream):
            entries = source.log.read(self._next, READ_OCTETS)
            found = [Shown(record(entry), entry[4]) for entry in entries if entry[0] < last]
            self._next = found[-1].message.seq + 1 if found else last
            return found
        cursor = self._cursor
        messages = self._standing() if cursor is None else self._coming(cursor)
        now_ms = self._vhost.counters.now_ms
        found = []
        for message in messages:
            if message.deadline_ms and message.deadline_ms <= now_ms:
                continue
            arrived_ms = self._arrival(message)
            with_data = loaded(self._vhost, message)
            if with_data is not None:
                found.append(Shown(with_data, arrived_ms))
        return found

    def _coming(self, cursor: Cursor) -> list[Message]:
        """Return what would be handed out next."""
        messages: list[Message] = self._source.coming(cursor, self._last, READ_OCTETS)
        later = self._later
        if not messages and later is not None and later.begin():
            self._cursor = self._source.new_cursor(Onlooker(self._source))
        elif not messages:
            self._next = self._last
        return messages if later is None else [one for one in messages if later.shows(one)]

    def _standing(self) -> list[Message]:
        """Return what is at the next positions."""
        source, last = self._source, self._last
        at = bisect_left(self._returned, self._next, key=seq_of)
        returned = self._returned[at : at + RETURNED_MAX]
        if at + RETURNED_MAX < len(self._returned):
            last = returned[-1].seq + 1
        messages: list[Message] = source.peek(self._next, last, READ_OCTETS, returned)
        self._next = messages[-1].seq + 1 if messages else last
        return messages

    def _arrival(self, message: Message) -> int:
        try:
            return self._vhost.store.arrival(message)
        except OSError:
            return 0


class Later:
    """Puts off what stands in groups that are somebody's, as a queue does that hands out.

    A queue of groups is gone over twice. What anybody may be given comes first; then, of each group
    that was somebody's when it was come to, all from there on.
    """

    def __init__(self, source: GroupedQueue) -> None:
        self._source = source
        self._again = False
        self._groups: dict[object, int] = {}  # Those of which something was put off: its position.

    def begin(self) -> bool:
        """Tell whether it is to be gone over once more, and expect that."""
        again = bool(self._groups) and not self._again
        self._again = True
        return again

    def shows(self, message: Message) -> bool:
        """Tell whether a message's turn is now."""
        found = self._source.standing(message)
        if found is None:
            return not self._again
        name, taken = found
        first = self._groups.get(name)
        if self._again:
            return first is not None and message.seq >= first
        if first is None and taken:
            self._groups[name] = message.seq
        return first is None and not taken


# --- Where to begin -----------------------------------------------------------------------------


def beginning(source: Queue, arguments: Mapping[str, object]) -> int:
    """Return the position at which a consumer that browses a queue wants to begin.

    Raises:
        PreconditionFailed: what it says is no position.
        InvalidArgument: it says two things.
    """
    period_s = replay_period(arguments, what(source))
    if period_s is None:
        return place(source, arguments, OFFSET, 0)
    if OFFSET in arguments:
        raise InvalidArgument(
            f"invalid arg '{REPLAY}' for {what(source)}: it contradicts '{OFFSET}'"
        )
    if period_s == 0:
        return int(source.counters.next_seq)
    return position_since(source, source.counters.now_ms - period_s * 1000)


def place(source: Queue, arguments: Mapping[str, object], argument: str, default: int) -> int:
    """Return the position that an argument says: a number, ``first``, ``last`` or ``next``, which
    is what comes from now on, or a time.

    Raises:
        PreconditionFailed: it is none of these.
    """
    value = arguments.get(argument, default)
    if value == "first":
        return 0
    if value == "last":
        return last_position(source)
    if value == "next":
        return int(source.counters.next_seq)
    if isinstance(value, datetime):
        return position_since(source, int(value.timestamp() * 1000))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= POSITION_MAX:
        raise PreconditionFailed(
            f"invalid arg '{argument}' for {what(source)}: {value!r} is no position"
        )
    return value


def what(source: Queue) -> str:
    """Return what a queue is called in the text of an error."""
    return f"queue '{source.name}' in vhost '{source.vhost.name}'"


class Halving:
    """Looks at single ready messages of a queue, to find one in a few tries among very many."""

    def __init__(self, source: Queue) -> None:
        self.first = source.position_of_first()
        self.end = source.counters.next_seq
        self._source = source
        self._returned = source.returned_within(self.first, self.end)

    def at(self, position: int) -> Message | None:
        """Return the first ready message at a position or behind it."""
        back = bisect_left(self._returned, position, key=seq_of)
        found = self._source.peek(position, self.end, 1, self._returned[back : back + 1])
        return found[0] if found else None


def last_position(source: Queue) -> int:
    """Return the position of the last message that is ready; the next one of all without any."""
    halving = Halving(source)
    last = high = halving.end
    low = halving.first
    while low < high:
        middle = (low + high) // 2
        message = halving.at(middle)
        if message is None:
            high = middle
        else:
            last = message.seq
            low = last + 1
    return last


def position_since(source: Queue, since_ms: int) -> int:
    """Return the position from which on the ready messages arrived at a time or later.

    What is in the journal says when it arrived; of other messages that is known as exactly as
    :class:`~headrace.model.arrival_times.Arrivals` knows it.
    """
    halving = Halving(source)
    low, high = halving.first, halving.end
    while low < high:
        middle = (low + high) // 2
        message = halving.at(middle)
        if message is None or arrived(source, message) >= since_ms:
            high = middle
        else:
            low = message.seq + 1
    return low


def arrived(source: Queue, message: Message) -> int:
    """Return when a message arrived, in milliseconds, or at the latest."""
    try:
        known: int = source.store.arrival(message)
    except OSError:
        known = 0
    return known or source.counters.arrivals.latest(message.seq, source.counters.now_ms)
