# SPDX-License-Identifier: Apache-2.0
"""Peeking: operators read messages without consuming them.

A peek shows messages in order of position from a position on, all ready messages in delivery order,
or delayed messages in order of their due times. It marks and counts no message, and does not count
as a use of the queue. (Consumers that browse use :mod:`headrace.model.operations.queue_view`.) The
event loop does other work between two steps; messages consumed in between are not shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.consumer import REPLAY, replay_period
from headrace.model.errors import AccessRefused, InvalidArgument, PreconditionFailed
from headrace.model.operations.message_job import load_copy, message_seq, record_message
from headrace.model.queue_kinds.delayed import DelayedQueue
from headrace.model.queue_kinds.grouped import GroupedQueue
from headrace.model.stream.stream import Stream

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.queue.ready_list import Cursor
    from headrace.model.selector import Selector

OFFSET = "x-stream-offset"  # Argument of a browser: the position to start at.
POSITION_MAX = (1 << 63) - 1
READ_SIZE = 8192  # Bytes read in one step.
RETURNED_MAX = 64  # The most requeued messages of one step.


class PeekedMessage(NamedTuple):
    """A message that a peek shows, with its times."""

    message: Message  # In memory; read only.
    arrived_ms: int  # The time of arrival; 0 if unknown.
    due_ms: int = 0  # The time of routing, if it is delayed; else 0.


class Peek:
    """Shows a queue's messages of one content class, or the records of a stream."""

    def __init__(
        self,
        vhost: Host,
        source: Queue,
        *,
        first: int | None = None,
        selector: Selector | None = None,
    ) -> None:
        """``source`` is a queue or one of its lanes; ``first`` is a position (offset of a stream).

        Without ``first``, it starts with the next message to be delivered.

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
        self._later: AssignedGroups | None = None
        if isinstance(source, Stream):
            self._next = max(self._next, source.log.first_offset)
            self._last = source.log.committed_offset
        elif first is None:
            self._cursor = source.ready.new_cursor(True)
            if isinstance(source, GroupedQueue):
                self._later = AssignedGroups(source)
        else:
            self._returned = source.ready.requeued_between(first, self._last)

    def run(self) -> Generator[PeekedMessage | None, None, None]:
        """Yield each selected message, and None for each message that is not selected."""
        if isinstance(self._source, DelayedQueue):
            yield from self._read_delayed(self._source)
            return
        while self._next < self._last and not self._source.deleted:
            for shown in self._read():
                message = shown.message
                is_selected = self._selector is None or self._matches(self._selector, message)
                yield shown if is_selected else None
            yield None

    def _read_delayed(self, source: DelayedQueue) -> Generator[PeekedMessage | None]:
        for message in source.waiting():
            loaded = None if message is None else load_copy(self._vhost, message)
            is_selected = self._selector is None
            if loaded is not None and self._selector is not None:
                is_selected = self._matches(self._selector, loaded)
            if loaded is None or not is_selected:
                yield None
            else:
                yield PeekedMessage(loaded, self._arrival(loaded), loaded.deadline_ms)

    def _matches(self, selector: Selector, message: Message) -> bool:
        contents = self._vhost.contents
        return contents is not None and selector.matches(contents.values(message))

    def _read(self) -> list[PeekedMessage]:
        """Return the next messages, and advance behind them."""
        source, last = self._source, self._last
        if isinstance(source, Stream):
            entries = source.log.read(self._next, READ_SIZE)
            peeked = [
                PeekedMessage(record_message(entry), entry[4])
                for entry in entries
                if entry[0] < last
            ]
            self._next = peeked[-1].message.seq + 1 if peeked else last
            return peeked
        cursor = self._cursor
        messages = self._next_by_position() if cursor is None else self._next_in_order(cursor)
        now_ms = self._vhost.counters.now_ms
        peeked = []
        for message in messages:
            if message.deadline_ms and message.deadline_ms <= now_ms:
                continue
            arrived_ms = self._arrival(message)
            loaded = load_copy(self._vhost, message)
            if loaded is not None:
                peeked.append(PeekedMessage(loaded, arrived_ms))
        return peeked

    def _next_in_order(self, cursor: Cursor) -> list[Message]:
        """Return the next messages in delivery order."""
        messages: list[Message] = self._source.ready.read_unseen(cursor, self._last, READ_SIZE)
        later = self._later
        if not messages and later is not None and later.begin():
            self._cursor = self._source.ready.new_cursor(True)
        elif not messages:
            self._next = self._last
        if later is None:
            return messages
        return [message for message in messages if later.shows(message)]

    def _next_by_position(self) -> list[Message]:
        """Return the messages at the next positions."""
        source, last = self._source, self._last
        index = bisect_left(self._returned, self._next, key=message_seq)
        returned = self._returned[index : index + RETURNED_MAX]
        if index + RETURNED_MAX < len(self._returned):
            last = returned[-1].seq + 1
        messages: list[Message] = source.ready.peek(self._next, last, READ_SIZE, returned)
        self._next = messages[-1].seq + 1 if messages else last
        return messages

    def _arrival(self, message: Message) -> int:
        try:
            return self._vhost.store.arrival(message)
        except OSError:
            return 0


class AssignedGroups:
    """Moves messages of groups that a consumer owns behind all others, in delivery order.

    A grouped queue is scanned twice. The first scan shows the messages that any consumer may get.
    The second shows all messages of each group that had an owner when the first scan reached it.
    """

    def __init__(self, source: GroupedQueue) -> None:
        self._source = source
        self._in_second_scan = False
        # Groups with postponed messages, and the position of the first.
        self._groups: dict[object, int] = {}

    def begin(self) -> bool:
        """Start the second scan; return False if none is needed."""
        is_needed = bool(self._groups) and not self._in_second_scan
        self._in_second_scan = True
        return is_needed

    def shows(self, message: Message) -> bool:
        """Return True if a message is shown in this scan."""
        group_state = self._source.group_state(message)
        if group_state is None:
            return not self._in_second_scan
        name, is_owned = group_state
        first = self._groups.get(name)
        if self._in_second_scan:
            return first is not None and message.seq >= first
        if first is None and is_owned:
            self._groups[name] = message.seq
        return first is None and not is_owned


# --- Start positions ----------------------------------------------------------------------------


def start_position(source: Queue, arguments: Mapping[str, object]) -> int:
    """Return the position at which a browser starts.

    Raises:
        PreconditionFailed: the argument is malformed.
        InvalidArgument: two arguments contradict each other.
    """
    period_s = replay_period(arguments, queue_subject(source))
    if period_s is None:
        return read_position(source, arguments, OFFSET, 0)
    if OFFSET in arguments:
        raise InvalidArgument(
            f"invalid arg '{REPLAY}' for {queue_subject(source)}: it contradicts '{OFFSET}'"
        )
    if period_s == 0:
        return int(source.counters.next_seq)
    return position_since(source, source.counters.now_ms - period_s * 1000)


def read_position(
    source: Queue, arguments: Mapping[str, object], argument: str, default: int
) -> int:
    """Return the position of an argument: a number, a time, ``first``, ``last`` or ``next``.

    ``next`` starts with new messages.

    Raises:
        PreconditionFailed: the argument is none of these.
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
            f"invalid arg '{argument}' for {queue_subject(source)}: {value!r} is not a position"
        )
    return value


def queue_subject(source: Queue) -> str:
    """Return the name of a queue for errors."""
    return f"queue '{source.name}' in vhost '{source.vhost.name}'"


class PositionSearch:
    """Reads single ready messages of a queue, for binary search among very many."""

    def __init__(self, source: Queue) -> None:
        self.first = source.ready.first_position(source.counters.next_seq)
        self.end = source.counters.next_seq
        self._source = source
        self._returned = source.ready.requeued_between(self.first, self.end)

    def at_or_after(self, position: int) -> Message | None:
        """Return the first ready message at or after a position."""
        index = bisect_left(self._returned, position, key=message_seq)
        returned = self._returned[index : index + 1]
        messages = self._source.ready.peek(position, self.end, 1, returned)
        return messages[0] if messages else None


def last_position(source: Queue) -> int:
    """Return the position of the last ready message; without any, the next message's position."""
    search = PositionSearch(source)
    last = high = search.end
    low = search.first
    while low < high:
        middle = (low + high) // 2
        message = search.at_or_after(middle)
        if message is None:
            high = middle
        else:
            last = message.seq
            low = last + 1
    return last


def position_since(source: Queue, since_ms: int) -> int:
    """Return the position of the first ready message that arrived at or after a time.

    Times in the journal are exact; others are those of
    :class:`~headrace.model.arrival_times.ArrivalTimes`.
    """
    search = PositionSearch(source)
    low, high = search.first, search.end
    while low < high:
        middle = (low + high) // 2
        message = search.at_or_after(middle)
        if message is None or arrival_ms(source, message) >= since_ms:
            high = middle
        else:
            low = message.seq + 1
    return low


def arrival_ms(source: Queue, message: Message) -> int:
    """Return the time at which a message arrived (ms), or the latest possible time."""
    try:
        exact_ms: int = source.store.arrival(message)
    except OSError:
        exact_ms = 0
    return exact_ms or source.counters.arrivals.latest(message.seq, source.counters.now_ms)
